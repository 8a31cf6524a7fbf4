"""Write the result of a check for node_exporter's textfile collector."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from chaosity.errors import file_system_error
from chaosity.health.check_host import CheckResult


def write_openmetrics_file(result: CheckResult, path: Path, end_seconds: float) -> None:
    """Write status, time and values of a check as gauges, whole or not at all.

    Args:
        result: the check.
        path: a file that ends in .prom, in the folder of node_exporter's textfile collector.
        end_seconds: end of the check in seconds since 1970.

    Raises:
        UserError: the file cannot be written.
    """
    registry = CollectorRegistry()

    def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"chaosity_check_{name}", text, ("host", *labels), registry=registry)

    host = result.host
    gauge("status", "0 fine, 1 warning, 2 fault.").labels(host).set(result.status)
    gauge("end_timestamp_seconds", "When the check ended.").labels(host).set(end_seconds)
    gauge("duration_seconds", "How long the check took.").labels(host).set(result.seconds)
    gauge("failed_points", "Points without a valid value.").labels(host).set(len(result.failed))
    labels = ("component", "metric", "point")
    loss = gauge("loss_ratio", "How much worse than the map: 0.1 is 10 % less bandwidth.", labels)
    limit = gauge("clear_loss_ratio", "The smallest loss that chance does not explain.", labels)
    value = gauge("value", "The value in the unit at the end of the metric's name.", labels)
    for each in result.values:
        place = host, "->".join(each.check.parts), each.check.metric, "/".join(each.check.key)
        loss.labels(*place).set(each.loss)
        limit.labels(*place).set(each.limit)
        value.labels(*place).set(each.value)
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise (file_system_error(error, path) or error) from None
