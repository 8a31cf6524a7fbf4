"""Losses that the position of nodes in their packages explains: structure, and no fault."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chaosity.anomalies.cell_log_scores import Mask, ScoredCells, Scores
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
    missing: Mask = ~cells.measured_mask
    rows_incomplete, columns_incomplete = (np.asarray(missing.any(axis=axis)) for axis in (1, 0))
    for label in np.unique(labels[labels >= 0]):
        part = np.where(labels == label, departures, np.nan)
        rows = _node_effects(part, rows_incomplete, cells.rows, packages)
        columns = _node_effects(
            (part - rows[:, None]).T, columns_incomplete, cells.columns, packages
        )
        explained += np.where(labels == label, rows[:, None] + columns[None, :], 0.0)
    return explained


def _node_effects(
    part: Scores, incomplete: NDArray[np.bool_], nodes: tuple[int, ...], packages: PackageNodes
) -> Scores:
    """Return the median departure of each row if every package has a similar node, else 0.

    It is at most what all packages have. A node whose cells are missing may be the similar one.
    """
    known = ~np.isnan(part).all(axis=1)
    effects = np.zeros(len(part))
    effects[known] = np.minimum(np.nanmedian(part[known], axis=1), 0.0)
    # The largest loss in each package; 0 where no node of a package was measured.
    largest = np.zeros(len(packages))
    for number, package in enumerate(packages):
        own = np.isin(nodes, package)
        unknown = (own & incomplete & ~known).any()
        largest[number] = -np.inf if unknown else effects[own].min(initial=0.0)
    recurs = (largest[None, :] <= _SIMILAR * effects[:, None]).all(axis=1)
    return np.where(recurs, np.maximum(effects, largest.max()), 0.0)
