"""What is counted as plain integers on the hot path, told to Prometheus when scraped. Of webhooks, each
delivery counts three times. Owns the tallies; their names and labels stand in metric_rows.METRICS.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Final

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gateway.telemetry.metric_rows import MetricRow

SOURCES_OF_TENANT_MAX: Final = 500
"""That are counted by name: a tenant may deploy others again and again, and each is some twenty series."""
OTHERS: Final = "_others"
"""What is counted as for all further ones: no source has such a name."""


class WebhookCounts:
    """Of one source. `deliveries` is by outcome, `refused` by reason, `verified` by the number of the secret;
    `answers` by bucket, the last above all bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.deliveries: defaultdict[str, int] = defaultdict(int)
        self.refused: defaultdict[str, int] = defaultdict(int)
        self.verified: defaultdict[int, int] = defaultdict(int)
        self.answers = [0] * (len(bounds) + 1)
        self.answers_s = 0.0

    def answered(self, after_s: float) -> None:
        self.answers[bisect_left(self._bounds, after_s)] += 1
        self.answers_s += after_s


class WebhookTallies(Collector):
    """Those of all sources, by tenant and source, as Prometheus reads them."""

    def __init__(self, rows: Mapping[str, MetricRow]) -> None:
        self._deliveries = rows["sluice_webhook_deliveries_total"]
        self._refused = rows["sluice_webhook_refused_total"]
        self._verified = rows["sluice_webhook_verified_total"]
        self._seconds = rows["sluice_webhook_answer_seconds"]
        self._sources: dict[tuple[str, str], WebhookCounts] = {}
        self._sources_of: Counter[str] = Counter()

    def of(self, tenant: str, source: str) -> WebhookCounts:
        counts = self._sources.get((tenant, source))
        if counts is None:
            if self._sources_of[tenant] >= SOURCES_OF_TENANT_MAX:
                source = OTHERS
            else:
                self._sources_of[tenant] += 1
            counts = self._sources.setdefault((tenant, source), WebhookCounts(self._seconds.buckets))
        return counts

    def collect(self) -> Iterator[Metric]:
        """Families whose samples are made as they are read, by whichever thread: of thousands of sources that
        takes long."""
        for row, told in (
            (self._deliveries, lambda each: each.deliveries),
            (self._refused, lambda each: each.refused),
            (self._verified, lambda each: each.verified),
        ):
            yield _Family(row, partial(self._counted, row, told))  # type: ignore[misc]
        yield _Family(self._seconds, self._answered)  # type: ignore[misc]

    def _counted(self, row: MetricRow, told: Callable[[WebhookCounts], Mapping[Any, int]]) -> Metric:
        return counted(
            row,
            {
                (*of, str(label)): n
                for of, each in list(self._sources.items())
                for label, n in dict(told(each)).items()
            },
        )

    def _answered(self) -> Metric:
        row = self._seconds
        seconds = HistogramMetricFamily(row.name, row.meaning, labels=row.labels)
        bounds = [*map(str, row.buckets), "+Inf"]
        for of, counts in list(self._sources.items()):
            buckets = list(zip(bounds, accumulate(counts.answers), strict=True))
            seconds.add_metric(of, buckets, counts.answers_s)
        return seconds


class _Family:
    """In place of a metric, as the encoders of the library read one."""

    unit = ""

    def __init__(self, row: MetricRow, made: Callable[[], Metric]) -> None:
        self.name = row.name.removesuffix("_total")
        self.documentation, self.type = row.meaning, row.kind
        self._made = made

    @property
    def samples(self) -> Sequence[Sample]:
        return self._made().samples


def counted(row: MetricRow, tally: Mapping[tuple[str, ...], int]) -> Metric:
    """A counter as Prometheus reads it; `tally` is by its labels."""
    family = CounterMetricFamily(row.name, row.meaning, labels=row.labels)
    for labels, count in tally.items():
        family.add_metric(labels, count)
    return family
