"""Topics of Amazon SNS as a spec names them: by their ARNs, each with the one host that speaks for it.

Source: docs/webhooks.md; ARNs are https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html. The
partitions are those whose hosts are under amazonaws.com and amazonaws.com.cn.
"""

from __future__ import annotations

import re
from typing import Any, Final

from spec.errors import Report, below
from spec.webhooks.sources import Topic

TOPICS_MAX: Final = 100
"""Topics of one source: more are better told apart by sources of their own."""

_ARN: Final = re.compile(
    r"arn:(?:aws:sns:(?!cn-|us-gov-)|aws-cn:sns:(?=cn-)|aws-us-gov:sns:(?=us-gov-))"
    r"([a-z]{2}(?:-[a-z]{2,12}){1,2}-[0-9]{1,2}):[0-9]{12}:[A-Za-z0-9_-]{1,256}"
)


def read_topics(source: dict[str, Any], of_sns: bool, pointer: str, report: Report) -> tuple[Topic, ...]:
    """The topics of a declared source, with a fault for each invalid one. They stand in place of secrets,
    where the source is `of_sns`."""
    if of_sns and "secrets" in source:
        why = "Amazon SNS shares no secret: it signs by a certificate. Declare only `topics`."
        report.add("invalid_value", below(pointer, "secrets"), why)
    if "topics" not in source:
        if of_sns and source.get("unsigned") is not True:
            why = "SNS signs messages of every AWS account: `topics` must list the ARNs of accepted topics."
            report.add("missing_key", pointer, why)
        return ()
    if not of_sns:
        report.add("invalid_value", below(pointer, "topics"), "Only the provider `sns` has `topics`.")
    elif source.get("unsigned") is True:
        why = "A source is `unsigned` or has `topics` to verify by, not both; remove one."
        report.add("invalid_value", below(pointer, "unsigned"), why)
    return _topics(source["topics"], below(pointer, "topics"), report)


def _topics(value: object, pointer: str, report: Report) -> tuple[Topic, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= TOPICS_MAX:
        report.add("wrong_type", pointer, f"`topics` is a list of 1 to {TOPICS_MAX} ARNs of topics of SNS.")
        return ()
    topics = []
    for index, arn in enumerate(value):
        found = _ARN.fullmatch(arn) if isinstance(arn, str) else None
        if found is None:
            why = (
                "This is not the ARN of a standard topic, such as arn:aws:sns:eu-west-1:123456789012:orders. "
                "Those that end in .fifo send to no URL."
            )
            report.add("invalid_value", below(pointer, index), why)
        else:
            suffix = ".cn" if found[1].startswith("cn-") else ""
            topics.append(Topic(found[0], f"sns.{found[1]}.amazonaws.com{suffix}"))
    return tuple(topics)
