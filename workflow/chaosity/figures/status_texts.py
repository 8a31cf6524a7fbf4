"""What figures and captions call the states of a mark without a measured value."""

from chaosity.statistics.cell_summary import UNMEASURED
from chaosity.store.left_out_points import LEFT_OUT, PREDICTED

# In the order of legends. `missing` was planned but not measured; `unmeasured` ran but gave no
# value; `absent` was not planned; a budget left out `left_out` and `predicted`, and other values
# let expect those that are predicted.
STATUS_TEXTS = {
    "failed": "failed",
    "missing": "not measured yet",
    PREDICTED: "predicted, not measured",
    LEFT_OUT: "left out by the budget",
    UNMEASURED: "not measured",
    "absent": "not part of the experiment",
}
