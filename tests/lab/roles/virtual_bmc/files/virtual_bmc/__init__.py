"""A BMC for the lab's machines: sushy-tools' Redfish emulator over the lab's power switch."""
