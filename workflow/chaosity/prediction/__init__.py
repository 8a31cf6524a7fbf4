"""What was not measured, predicted with bounds: drive sets, and a machine fitted to a host."""
