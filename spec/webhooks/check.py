"""Checks the part `webhooks` of a spec: from JSON to sources, with every fault in a `Report`.

Knows all presets and says what is missing: a sender that signs the URL needs `public_base_url`, one without a
verifier says so by `"unsigned": true`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import msgspec

from spec.errors import Report, below, proposal, shown
from spec.fields import refuse_null
from spec.identifiers import NAME_GRAMMAR, canonicalize, is_name
from spec.model import Spec
from spec.webhooks.declared import Declared
from spec.webhooks.paths import read_body_fields, read_template
from spec.webhooks.presets import DIGESTS, PRESETS, SIGNED_WORDS, TIMESTAMP_UNITS, TOLERANCE_S, Scheme
from spec.webhooks.secrets import read_secrets, resolve
from spec.webhooks.sources import HANDSHAKES, SIGNED_BY_HANDSHAKE, Handshake, Source, Template
from spec.webhooks.target import read_target
from spec.webhooks.topics import read_topics
from spec.webhooks.urls import is_base_url

_SOURCE_KEYS = frozenset(
    {
        "actor",
        "batch",
        "data",
        "delivery_id",
        "handshake",
        "headers",
        "provider",
        "public_base_url",
        "secrets",
        "to",
        "tolerance_s",
        "topics",
        "type_at",
        "unsigned",
        "verify_token",
    }
)
_HMAC_KEYS = frozenset(
    {
        "digest",
        "encoding",
        "header",
        "id_header",
        "key",
        "prefix",
        "signed",
        "timestamp_header",
        "timestamp_unit",
    }
)
_PARTY_KEYS = frozenset({"type", "id"})
_NULL_BEFORE = ("handshake", "header", "id_header", "provider", "public_base_url", "timestamp_header")
"""What earlier releases took as absent where it was null."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_TOLERANCE_MAX_S = 10**9  # 31 years: deliveries that were recorded once can be sent again
_HANDSHAKES_OF_ONE = {
    "bt_challenge": "braintree",
    "client_id": "adobe_sign",
    "subscription_confirmation": "sns",
}


def check_webhooks(
    value: object, pointer: str, environ: Mapping[str, str], spec: Spec, report: Report
) -> Mapping[str, Source]:
    """The declared sources by name. `spec` is what the document declares beside them."""
    if not isinstance(value, dict):
        report.add("wrong_type", pointer, "This part of a spec must be an object.")
        return MappingProxyType({})
    sources = {}
    for name, declared in value.items():
        place = below(pointer, name)
        if not is_name(name):
            report.add(
                "invalid_name", place, f"{shown(name)} is not a valid name; names are `{NAME_GRAMMAR}`."
            )
        if isinstance(declared, dict):
            sources[name] = _Check(name, declared, place, environ, spec, report).source()
        else:
            report.add("wrong_type", place, "A source of webhooks must be an object.")
    return MappingProxyType(_with_reserved(sources))


def _with_reserved(sources: dict[str, Source]) -> dict[str, Source]:
    """The same sources, each with the texts that a handshake signs by one of its secrets."""
    signing = [
        (texts, _keys(source))
        for source in sources.values()
        if (texts := SIGNED_BY_HANDSHAKE.get(source.handshake or ""))
    ]
    if not signing:
        return sources
    return {
        name: replace(source, reserved=tuple([texts for texts, keys in signing if keys & _keys(source)]))
        for name, source in sources.items()
    }


def _keys(source: Source) -> set[bytes]:
    """What its secrets sign by: the key, and the text itself."""
    keys = {secret.key.octets for secret in source.secrets}
    return (keys | {secret.text.encode() for secret in source.secrets}) - {b""}


class _Check(Declared):
    """One source. Each method reads one key of it."""

    def __init__(
        self,
        name: str,
        declared: dict[str, Any],
        pointer: str,
        environ: Mapping[str, str],
        spec: Spec,
        report: Report,
    ) -> None:
        super().__init__(declared, pointer, spec, report)
        self._name, self._environ = name, environ

    def source(self) -> Source:
        self._check_keys()
        provider, scheme = self._scheme()
        unsigned = self._unsigned()
        secrets = self._secrets(scheme, unsigned)
        actor_type, actor_id = self._actor()
        return Source(
            name=self._name,
            provider=provider,
            scheme=scheme,
            unsigned=unsigned,
            secrets=secrets,
            target=read_target(self._declared, scheme, self._pointer, self._spec, self._report),
            actor_type=actor_type,
            actor_id=actor_id,
            tolerance_s=self._tolerance(scheme),
            public_base_url=self._base_url(scheme),
            handshake=self._handshake(),
            verify_token=self._verify_token(),
            data=self._data(),
            headers=self._headers(scheme),
            items=self._fields("batch") if "batch" in self._declared else _fields_of(scheme.items),
            topics=read_topics(self._declared, scheme.form == "sns", self._pointer, self._report),
            delivery_id=self._fields("delivery_id"),
        )

    def _check_keys(self) -> None:
        known = _SOURCE_KEYS | (_HMAC_KEYS if self._declared.get("provider") == "hmac" else frozenset())
        known |= {"id_header"} if "provider" not in self._declared else frozenset()
        for key in self._declared:
            if key in known:
                continue
            hint = (
                "It is for `hmac`; a preset has its own."
                if key in _HMAC_KEYS
                else proposal(key, _SOURCE_KEYS | _HMAC_KEYS)
            )
            self.fault("unknown_key", f"{shown(key)} is not a known key here. {hint}", key)
        refuse_null(self._declared, _NULL_BEFORE, self._pointer, self._report)

    def _scheme(self) -> tuple[str, Scheme]:
        provider = self._declared.get("provider")
        if provider is None:
            if self._declared.get("unsigned") is not True:
                why = 'A source needs a `provider` that says how it signs, or `"unsigned": true`.'
                self.fault("missing_key", why)
            id_header = self._header("id_header")
            return "", Scheme(delivery=(f"header:{id_header}",) if id_header else ())
        preset = PRESETS.get(provider) if isinstance(provider, str) else None
        if preset is None:
            what = shown(provider) if isinstance(provider, str) else "This"
            hint = proposal(provider if isinstance(provider, str) else "", PRESETS)
            self.fault(
                "invalid_value",
                f"{what} is not a known provider. {hint} Any other HMAC scheme is `hmac`.",
                "provider",
            )
            return "", Scheme()
        return provider, self._hmac(preset) if provider == "hmac" else preset

    def _hmac(self, preset: Scheme) -> Scheme:
        """The generic scheme, with what this source says of it."""
        changed: dict[str, Any] = {}
        for key, allowed in (
            ("digest", DIGESTS),
            ("encoding", ("hex", "base64")),
            ("timestamp_unit", TIMESTAMP_UNITS),
            ("key", ("text", "hex", "base64", "standard")),
        ):
            if key in self._declared:
                changed[key] = self._one_of(key, allowed)
        for key in ("header", "timestamp_header", "id_header"):
            if key in self._declared:
                changed[key] = self._header(key) or "absent"
        if "header" not in changed and self._declared.get("unsigned") is not True:
            self.fault("missing_key", "`hmac` needs `header`, the name of the header with the signature.")
        prefix = self._declared.get("prefix", "")
        if not isinstance(prefix, str) or not prefix.isascii():
            self.fault(
                "wrong_type", "`prefix` is ASCII text before the signature, such as `sha256=`.", "prefix"
            )
        else:
            changed["prefix"] = prefix
        changed["signed"] = self._signed(changed)
        if changed.get("id_header"):
            changed["delivery"] = (f"header:{changed['id_header']}",)
        return msgspec.structs.replace(preset, **changed)

    def _one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self._declared[key]
        if value in allowed:
            return str(value)
        self.fault("invalid_value", f"`{key}` is one of {', '.join(allowed)}.", key)
        return allowed[0]

    def _header(self, key: str) -> str | None:
        value = self._declared.get(key)
        if value is None:
            return None
        if isinstance(value, str) and _HEADER.fullmatch(value):
            return value.lower()
        self.fault("invalid_value", f"`{key}` is the name of a header.", key)
        return None

    def _signed(self, changed: Mapping[str, Any]) -> tuple[str, ...]:
        parts = self._declared.get("signed", ["body"])
        if not isinstance(parts, list) or not parts or not all(isinstance(part, str) for part in parts):
            why = f"`signed` lists {', '.join(SIGNED_WORDS)} and literal text, in the order that is signed."
            self.fault("wrong_type", why, "signed")
            return ("body",)
        if "body" not in parts and "url" not in parts:
            self.fault(
                "invalid_value",
                "`signed` leaves the body out, so the body could be changed. Add `body`.",
                "signed",
            )
        for word, key in (("timestamp", "timestamp_header"), ("id", "id_header")):
            if word in parts and key not in changed:
                self.fault(
                    "missing_key", f"`signed` names {word}, so `{key}` must say which header holds it."
                )
        return tuple(parts)

    def _unsigned(self) -> bool:
        unsigned = self._declared.get("unsigned", False)
        if not isinstance(unsigned, bool):
            self.fault("wrong_type", "`unsigned` is true or false.", "unsigned")
            return False
        return unsigned

    def _secrets(self, scheme: Scheme, unsigned: bool) -> tuple[Any, ...]:
        if scheme.form == "sns":  # has topics in their place
            return ()
        if "secrets" in self._declared:
            if unsigned:
                why = "A source is `unsigned` or has `secrets` to verify with, not both; remove one."
                self.fault("invalid_value", why, "unsigned")
            place = below(self._pointer, "secrets")
            return read_secrets(self._declared["secrets"], place, scheme.key, self._environ, self._report)
        if not unsigned and "provider" in self._declared:
            why = 'Without `secrets` nothing can be verified: `"secrets": ["env:SLUICE_SECRET_NAME"]`.'
            self.fault("missing_key", why)
        return ()

    def _actor(self) -> tuple[str, str]:
        declared = self._declared.get("actor", {"type": "webhook", "id": f"{self._name}_webhook"})
        party = self.object(declared, "actor", _PARTY_KEYS)
        kind, key = [self._of_party(party, name) for name in ("type", "id")]
        of = "actor" in self._declared
        if kind is not None and kind not in self._spec.agent_types:
            place = ("actor", "type") if of else ()
            self.fault("undeclared", f"`agent_types` has no {shown(kind)}; add it there.", *place)
        canonical = None if key is None else canonicalize(key, self._spec.singletons)
        if key is not None and canonical is None:
            why = f"The actor's id {shown(key)} is not an identifier; declare it in `singletons`."
            self.fault("undeclared", why, *(("actor", "id") if of else ()))
        return kind or "", canonical or ""

    def _of_party(self, party: Mapping[str, object], name: str) -> str | None:
        value = party.get(name)
        if isinstance(value, str):
            return value
        if name in party:
            self.fault("wrong_type", f"The actor's `{name}` must be a string.", "actor", name)
        elif isinstance(self._declared.get("actor", {}), dict):
            self.fault("missing_key", f"`actor` needs `{name}`.", "actor")
        return None

    def _tolerance(self, scheme: Scheme) -> int:
        value = self._declared.get("tolerance_s", scheme.tolerance_s)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _TOLERANCE_MAX_S:
            return value
        self.fault("invalid_value", f"`tolerance_s` is 1 to {_TOLERANCE_MAX_S} seconds.", "tolerance_s")
        return TOLERANCE_S

    def _base_url(self, scheme: Scheme) -> str:
        value = self._declared.get("public_base_url")
        if value is None:
            if "url" in scheme.signed and self._declared.get("unsigned") is not True:
                why = "This provider signs the URL: `public_base_url` must say what it calls, up to the path."
                self.fault("missing_key", why)
            return ""
        if isinstance(value, str) and is_base_url(value):
            return value.rstrip("/")
        why = "`public_base_url` is like https://hooks.example.com."
        self.fault("invalid_value", why, "public_base_url")
        return ""

    def _handshake(self) -> Handshake | None:
        value = self._declared.get("handshake")
        only = _HANDSHAKES_OF_ONE.get(value) if isinstance(value, str) else None
        if only is not None and self._declared.get("provider") != only:
            self.fault("invalid_value", f"`{value}` is only for the provider `{only}`.", "handshake")
            return None
        if value is None or value in HANDSHAKES:
            return cast(Handshake | None, value)
        self.fault("invalid_value", f"`handshake` is one of {', '.join(HANDSHAKES)}.", "handshake")
        return None

    def _verify_token(self) -> str | None:
        if "verify_token" not in self._declared:
            return None
        place = below(self._pointer, "verify_token")
        return resolve(self._declared["verify_token"], place, self._environ, self._report)

    def _data(self) -> Template | None:
        if "data" not in self._declared:
            return None
        return read_template(self._declared["data"], below(self._pointer, "data"), self._report)

    def _headers(self, scheme: Scheme) -> tuple[str, ...]:
        named = self._declared.get("headers", [])
        if not isinstance(named, list):
            self.fault("wrong_type", "`headers` is a list of headers to keep with the event.", "headers")
            named = []
        kept = []
        for index, name in enumerate(named):
            if isinstance(name, str) and _HEADER.fullmatch(name):
                kept.append(name.lower())
            else:
                self.fault("invalid_value", "This is not a valid name of a header.", "headers", index)
        return tuple(dict.fromkeys([*scheme.kept_headers, *kept]))

    def _fields(self, key: str) -> tuple[str, ...] | None:
        if key not in self._declared:
            return None
        return read_body_fields(self._declared[key], below(self._pointer, key), self._report)


def _fields_of(dotted: str | None) -> tuple[str, ...] | None:
    if dotted is None:
        return None
    return tuple(dotted.split(".")) if dotted else ()
