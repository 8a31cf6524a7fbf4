"""Drive sets that were not measured, predicted with bounds and intervals."""
