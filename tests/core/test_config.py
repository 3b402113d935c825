from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import SETTINGS, Config, ConfigError, one, told_as_given
from gateway.server_urls import redacted

REQUIRED = {
    "SLUICE_REDIS_URL": "redis://localhost:6379",
    "SLUICE_POSTGRES_URL": "postgresql://sluice:s3cret@db.example.com:5432/events",
}


def no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def config(**environ: str) -> Config:
    return Config.from_environ({**REQUIRED, **environ}, no_file)


def faults(environ: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        Config.from_environ(environ, no_file)
    return refused.value.faults


def test_two_urls_are_all_that_must_be_set() -> None:
    assert config() == Config(
        redis_url="redis://localhost:6379",
        postgres_url="postgresql://sluice:s3cret@db.example.com:5432/events",
    )
    assert {row.field for row in SETTINGS if row.required} == {"redis_url", "postgres_url"}


def test_every_setting_has_a_row_with_its_reason_and_a_default_that_it_accepts() -> None:
    assert [row.field for row in SETTINGS] == [field.name for field in dataclasses.fields(Config)]
    for row in SETTINGS:
        assert row.reason.endswith(".")
        if row.default is not None:
            assert row.kind.read(str(row.default)) == row.default


def test_limits_of_the_contract_are_the_defaults() -> None:
    made = config()
    assert (made.event_bytes_max, made.body_bytes_max, made.bulk_bytes_max) == (
        262_144,
        1_048_576,
        67_108_864,
    )
    assert (made.headers_max, made.header_bytes_max) == (100, 65_536)
    assert (made.host, made.port, made.partitions) == ("127.0.0.1", 8017, 16)


def test_values_are_read_by_their_kind() -> None:
    made = config(
        SLUICE_HOST="0.0.0.0",
        SLUICE_PORT="0",
        SLUICE_LISTEN_FD="3",
        SLUICE_DEV="1",
        SLUICE_ALLOW_PRIVATE_TARGETS="False",
        SLUICE_REDIS_TIMEOUT_S="0.25",
        SLUICE_LOG_LEVEL="WARNING",
        SLUICE_METRICS_TOKEN="m3tr1cs",
        SLUICE_PARTITIONS="1",
    )
    assert (made.host, made.port, made.listen_fd, made.dev) == ("0.0.0.0", 0, 3, True)
    assert (made.allow_private_targets, made.redis_timeout_s, made.log_level) == (False, 0.25, "warning")
    assert (made.metrics_token, made.partitions) == ("m3tr1cs", 1)


def test_an_empty_value_is_the_same_as_none() -> None:
    assert config(SLUICE_PORT="", SLUICE_OPS_PORT="", SLUICE_METRICS_TOKEN="", SLUICE_DEV="") == config()


def test_all_faults_are_reported_at_once() -> None:
    assert faults(
        {
            "SLUICE_PORT": "eighty",
            "SLUICE_REDIS_URL": "localhost:6379",
            "SLUICE_BODY_TIMEOUT_S": "-1",
            "SLUICE_PARTITION": "4",
            "SLUICE_DEV": "maybe",
        }
    ) == (
        "SLUICE_PARTITION is not a setting: did you mean SLUICE_PARTITIONS?",
        "SLUICE_REDIS_URL must be redis://… or rediss://… or redis+cluster://… or rediss+cluster://… or "
        "unix://…, its password percent-encoded.",
        "SLUICE_POSTGRES_URL (or SLUICE_POSTGRES_URL_FILE) is not set: "
        "postgresql://… or postgres://…, its password percent-encoded.",
        "SLUICE_PORT must be an integer from 0 to 65535, not 'eighty'.",
        "SLUICE_DEV must be one of 1, true, yes, on, 0, false, no, off, not 'maybe'.",
        "SLUICE_BODY_TIMEOUT_S must be seconds from 0.1 to 3600, not '-1'.",
    )


@pytest.mark.parametrize(
    "text", ["0", "1025", "1_6", "+16", " 16", "16 ", "16.0", "١٦", "１６", "1e1", "9" * 400]
)
def test_a_count_is_ascii_digits_within_its_bounds(text: str) -> None:
    (fault,) = faults({**REQUIRED, "SLUICE_PARTITIONS": text})
    assert fault.startswith("SLUICE_PARTITIONS must be an integer from 1 to 1024, not ")


@pytest.mark.parametrize("text", ["nan", "inf", "1e3", "0.01", "61", ".5", "5."])
def test_seconds_are_plain_decimals_within_their_bounds(text: str) -> None:
    (fault,) = faults({**REQUIRED, "SLUICE_REDIS_TIMEOUT_S": text})
    assert fault.startswith("SLUICE_REDIS_TIMEOUT_S must be seconds from 0.05 to 60, not ")


def test_proxies_are_addresses_and_networks() -> None:
    made = config(SLUICE_TRUSTED_PROXIES="10.0.0.0/8, 192.0.2.7,fd00::/8")
    assert [str(each) for each in made.trusted_proxies or ()] == ["10.0.0.0/8", "192.0.2.7/32", "fd00::/8"]


@pytest.mark.parametrize(
    "text", ["nginx", "10.0.0.1/8", "10.0.0.0/8,", "10.0.0.0/33", "10.0.0.0/8 fd00::/8", "*"]
)
def test_what_is_no_network_is_no_proxy(text: str) -> None:
    (fault,) = faults({**REQUIRED, "SLUICE_TRUSTED_PROXIES": text})
    assert fault.startswith("SLUICE_TRUSTED_PROXIES must be addresses or networks such as 10.0.0.0/8")


def test_requests_a_second_are_unlimited_unless_a_limit_is_set() -> None:
    made = config()
    assert (made.rate_limit_per_s, made.rate_limit_burst) == (None, None)
    made = config(SLUICE_RATE_LIMIT_PER_S="50", SLUICE_RATE_LIMIT_BURST="500")
    assert (made.rate_limit_per_s, made.rate_limit_burst) == (50, 500)


def test_what_is_under_way_and_unknown_keys_are_bounded_unless_that_is_turned_off() -> None:
    made = config()
    assert (made.key_requests_max, made.requests_max, made.unknown_keys_per_min) == (4096, 16_384, 600)
    made = config(SLUICE_KEY_REQUESTS_MAX="0", SLUICE_REQUESTS_MAX="0", SLUICE_UNKNOWN_KEYS_PER_MIN="0")
    assert (made.key_requests_max, made.requests_max, made.unknown_keys_per_min) == (0, 0, 0)


@pytest.mark.parametrize(
    "name",
    [
        "SLUICE_SECRET_STRIPE",
        "SLUICE_SECRETS_DIR",
        "SLUICE_SECRETS_TENANT",
        "SLUICE_PYTHON",
        "SLUICE_KEY",
        "SLUICE_KEY_FILE",
        "SLUICE_URL",
        "PATH",
    ],
)
def test_names_that_belong_to_others_are_left_untouched(name: str) -> None:
    assert config(**{name: "anything"}) == config()


def test_an_unknown_name_with_no_near_one_is_still_a_fault() -> None:
    assert faults({**REQUIRED, "SLUICE_XYZZY": "1"}) == ("SLUICE_XYZZY is not a setting: unset it.",)


def test_a_secret_may_stand_in_a_file() -> None:
    files = {"/run/secrets/postgres": "postgresql:///events?host=/run/pg\n", "/run/secrets/token": "t0ken\n"}
    made = Config.from_environ(
        {
            "SLUICE_REDIS_URL": "unix:///run/redis.sock",
            "SLUICE_POSTGRES_URL_FILE": "/run/secrets/postgres",
            "SLUICE_METRICS_TOKEN_FILE": "/run/secrets/token",
        },
        files.__getitem__,
    )
    assert (made.postgres_url, made.metrics_token) == ("postgresql:///events?host=/run/pg", "t0ken")


def not_text(path: str) -> str:
    return b"\xff".decode()


@pytest.mark.parametrize(
    ("read_file", "sentence"),
    [
        (no_file, "SLUICE_METRICS_TOKEN_FILE: /x can't be read: No such file or directory."),
        (lambda path: " \n", "SLUICE_METRICS_TOKEN_FILE: /x is empty."),
        (not_text, "SLUICE_METRICS_TOKEN_FILE, the content of /x, must be UTF-8 text."),
        (
            lambda path: "two words",
            "SLUICE_METRICS_TOKEN_FILE, the content of /x, must be a bearer token "
            "(printable ASCII, no spaces).",
        ),
    ],
)
def test_a_secret_file_that_can_not_be_used_is_a_fault_that_names_it(
    read_file: object, sentence: str
) -> None:
    assert callable(read_file)
    with pytest.raises(ConfigError) as refused:
        Config.from_environ({**REQUIRED, "SLUICE_METRICS_TOKEN_FILE": "/x"}, read_file)
    assert refused.value.faults == (sentence,)


def test_a_secret_given_twice_is_a_fault() -> None:
    assert faults({**REQUIRED, "SLUICE_REDIS_URL_FILE": "/x"}) == (
        "SLUICE_REDIS_URL and SLUICE_REDIS_URL_FILE are both set: unset one of them.",
    )


def test_what_is_no_secret_is_not_read_from_a_file() -> None:
    (fault,) = faults({**REQUIRED, "SLUICE_PORT_FILE": "/x"})
    assert fault.startswith("SLUICE_PORT_FILE is not a setting")


def test_no_secret_is_in_the_repr() -> None:
    shown = repr(config(SLUICE_METRICS_TOKEN="m3tr1cs", SLUICE_REDIS_URL="rediss://:r3dis@cache:6380/0"))
    assert "s3cret" not in shown
    assert "m3tr1cs" not in shown
    assert "r3dis@" not in shown
    assert "postgres_url='postgresql://sluice:***@db.example.com:5432/events'" in shown
    assert "redis_url='rediss://:***@cache:6380/0'" in shown


def test_no_secret_is_in_a_fault() -> None:
    told = faults(
        {"SLUICE_REDIS_URL": "redis:/:s3cret@x", "SLUICE_POSTGRES_URL": "postgres://u:s3/cret@db/x"}
    )
    assert len(told) == 2
    assert not any("s3" in sentence for sentence in told)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost", "redis://localhost"),
        ("redis+cluster://u:p@h1:1,h2:2/0", "redis+cluster://u:***@h1:1,h2:2/0"),
        ("redis://:pw@127.0.0.1:18756", "redis://:***@127.0.0.1:18756"),
        ("redis://u:p@s@h", "redis://u:***@h"),
        ("redis://:p@h?x=1@2", "redis://***"),
        ("redis://:p/w@h", "redis://***"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("postgresql://u:p@h1:1,h2:2/db", "postgresql://u:***@h1:1,h2:2/db"),
        ("postgresql://u:p@ss@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:12/p@h/db", "postgresql://***"),
        (
            "postgresql:///db?host=/run/pg&user=u&password=p",
            "postgresql:///db?host=/run/pg&user=u&password=***",
        ),
    ],
)
def test_a_shown_url_has_no_password(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///db?host=/run/pg&user=u",
        "postgres://u:p%40@h1:5432,h2:5433/db?target_session_attrs=read-write",
        "postgresql://u:a:b@[::1]:5432/db",
        "postgresql://",
    ],
)
def test_postgres_urls_are_taken_as_the_driver_takes_them(url: str) -> None:
    assert config(SLUICE_POSTGRES_URL=url).postgres_url == url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:/x",
        "http://h/db",
        "postgresql://h:x/db",
        "postgresql://h /db",
        "postgresql://[1]/db",
        "h/db",
    ],
)
def test_what_is_no_postgres_url_is_a_fault(url: str) -> None:
    (fault,) = faults({**REQUIRED, "SLUICE_POSTGRES_URL": url})
    assert (
        fault == "SLUICE_POSTGRES_URL must be postgresql://… or postgres://…, its password percent-encoded."
    )


@pytest.mark.parametrize(
    "url", ["postgresql://h:99999/db", "postgresql://h1:1,h2:0/db", "postgresql:///db?host=h&port=1,70000"]
)
def test_a_port_that_no_postgres_can_have_is_a_fault(url: str) -> None:
    (fault,) = faults({**REQUIRED, "SLUICE_POSTGRES_URL": url})
    assert fault == "SLUICE_POSTGRES_URL has a port that is not a number from 1 to 65535."


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://h/",
        "redis://u:p@[::1]:6379/15?db=0",
        "redis+cluster://:p@h1:1,[::1]:2/0",
        "rediss://h?ssl_cert_reqs=none&ssl_ca_certs=/etc/ca.pem",
        "unix:///run/redis.sock?db=1&password=p",
    ],
)
def test_redis_urls_are_taken_as_the_driver_takes_them(url: str) -> None:
    assert config(SLUICE_REDIS_URL=url).redis_url == url


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis://h:99999", "has a port that is not a number from 1 to 65535."),
        ("redis+cluster://h1:1,[::1]:65536", "has a port that is not a number from 1 to 65535."),
        ("redis://h/orders", "names a database that is not a number."),
        ("redis+cluster://h/0/1", "names a database that is not a number."),
        (
            "redis://h/0?foo=x",
            "has an unknown option or an invalid value; the options are db, username, password.",
        ),
        (
            "redis://h?ssl_cert_reqs=none",
            "has an unknown option or an invalid value; the options are db, username, password",
        ),
        (
            "rediss://h?ssl_cert_reqs=maybe",
            "has an unknown option or an invalid value; the options are db, username, password, ssl_ca_",
        ),
        (
            "unix:///run/redis.sock?db=one",
            "has an unknown option or an invalid value; the options are db, username, password",
        ),
    ],
)
def test_what_the_driver_of_redis_would_stumble_over_is_a_fault(url: str, sentence: str) -> None:
    (fault,) = faults({**REQUIRED, "SLUICE_REDIS_URL": url})
    assert fault.startswith(f"SLUICE_REDIS_URL {sentence}")


def test_a_single_setting_needs_no_other() -> None:
    assert one("partitions", {"SLUICE_PARTITIONS": "4"}, no_file) == 4
    assert one("partitions", {}, no_file) == 16
    with pytest.raises(ConfigError, match=r"SLUICE_POSTGRES_URL .* is not set"):
        one("postgres_url", {}, no_file)


names = st.sampled_from([row.name for row in SETTINGS] + ["SLUICE_X", "SLUICE_REDIS_URL_FILE", "HOME"])


@given(st.dictionaries(names, st.text(max_size=20)))
def test_any_environment_gives_settings_or_sentences(environ: dict[str, str]) -> None:
    try:
        made = Config.from_environ(environ, no_file)
    except ConfigError as refused:
        assert refused.faults
        assert all(sentence.startswith("SLUICE_") and sentence[-1] in ".?" for sentence in refused.faults)
    else:
        assert made.redis_url


def test_origins_are_as_browsers_send_them_or_a_star() -> None:
    made = config(SLUICE_CORS_ORIGINS="https://shop.example, http://localhost:5173")
    assert made.cors_origins == {"https://shop.example", "http://localhost:5173"}
    assert config(SLUICE_CORS_ORIGINS="*").cors_origins == {"*"}
    for text in ("https://shop.example/", "shop.example", "https://Shop.example", "*,https://a.b", "null"):
        (fault,) = faults({**REQUIRED, "SLUICE_CORS_ORIGINS": text})
        assert fault.startswith("SLUICE_CORS_ORIGINS must be origins such as https://shop.example")


def test_what_an_option_gave_is_told_by_the_option() -> None:
    faults = ("SLUICE_REDIS_URL must be a URL.", "SLUICE_POSTGRES_URL must be a URL.", "SLUICE_PORT is none.")
    with pytest.raises(ConfigError) as told, told_as_given(postgres="x"):
        raise ConfigError(faults)
    assert told.value.faults == (faults[0], "--postgres must be a URL.", faults[2])
    with pytest.raises(ConfigError) as told, told_as_given(redis="x", postgres="x"):
        raise ConfigError(faults)
    assert told.value.faults == ("--redis must be a URL.", "--postgres must be a URL.", faults[2])
    with told_as_given():
        pass
