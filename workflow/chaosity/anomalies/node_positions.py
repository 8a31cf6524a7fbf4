"""Losses that the position of nodes in their packages explains: structure, and no fault."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies.cell_log_scores import ScoredCells, Scores
from chaosity.anomalies.matrix_structure import PackageNodes

# Noise makes equal losses different. So a loss is similar to another if it is at least this share
# of it.
_SIMILAR = 0.4


def losses_explained_by_node_position(
    cells: ScoredCells[int],
    departures: Scores,
    labels: NDArray[np.int_],
    packages: PackageNodes | None,
) -> Scores:
    """Return the part of each departure, at most 0, that the position of its nodes explains.

    A node that is far from the links of its package is slightly slower as initiator and as target.
    This is structural when every package has such a node; in a single node it is a fault.
    """
    explained = np.zeros(departures.shape)
    if not packages or len(packages) < 2:
        return explained
    for label in np.unique(labels[labels >= 0]):
        part = np.where(labels == label, departures, np.nan)
        rows = _node_effects(part, cells.rows, packages)
        columns = _node_effects((part - rows[:, None]).T, cells.columns, packages)
        explained += np.where(labels == label, rows[:, None] + columns[None, :], 0.0)
    return explained


def _node_effects(part: Scores, nodes: tuple[int, ...], packages: PackageNodes) -> Scores:
    """Return the median departure of each row if every package has a similar node, else 0."""
    known = ~np.isnan(part).all(axis=1)
    effects = np.zeros(len(part))
    effects[known] = np.minimum(np.nanmedian(part[known], axis=1), 0.0)
    in_packages = [effects[np.isin(nodes, package)] for package in packages]
    # The largest loss in each package; 0 where no node of a package was measured.
    largest = np.array([own.min(initial=0.0) for own in in_packages])
    recurs = (largest[None, :] <= _SIMILAR * effects[:, None]).all(axis=1)
    return np.where(recurs, effects, 0.0)
