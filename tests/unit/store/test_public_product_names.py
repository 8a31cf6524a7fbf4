"""What firmware and memory texts may say to others: products, and nothing that names a site."""

from __future__ import annotations

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chaosity.store.profile_anonymisation import (
    public_device_firmware,
    public_device_model,
    public_host_firmware,
    public_memory,
    public_processor_model,
    public_version,
)

FORMS = [
    public_processor_model,
    public_device_model,
    public_device_firmware,
    public_host_firmware,
    public_memory,
    public_version,
]


PROCESSORS = """AMD EPYC 7413 24-Core Processor
AMD Ryzen Threadripper PRO 5995WX 64-Cores
Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz
Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz
13th Gen Intel(R) Core(TM) i7-1370P
Intel Xeon Processor (Skylake, IBRS)
QEMU Virtual CPU version 2.5+
Ampere(R) Altra(R) Processor Q80-30
Neoverse-N1
AuthenticAMD
x86_64"""
DEVICES = """SAMSUNG MZQL2960HCJR-00A07
Micron_9300_MTFDHAL3T8TDP
WDC WUS4BB038D7P3E3
Dell Ent NVMe CM6 MU 3.2TB
NVIDIA A100-SXM4-80GB
AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2
QEMU NVMe Ctrl"""


@pytest.mark.parametrize(
    ("form", "text", "published"),
    [
        *((public_processor_model, name, name) for name in PROCESSORS.splitlines()),
        *((public_device_model, name, name) for name in DEVICES.splitlines()),
        # The firmware of a host is a known vendor, a version and microcode.
        *(
            (public_host_firmware, text, text)
            for text in ("AMI 2.4 microcode 0xa0011d1", "Dell Inc. 2.12.1", "Dell Inc 2.12.1")
        ),
        (
            public_host_firmware,
            "American Megatrends International, LLC. F14",
            "American Megatrends International, LLC. F14",
        ),
        (public_host_firmware, "HP alice@acme.example microcode 0x1", "HP microcode 0x1"),
        (public_host_firmware, "HPE S64GNE0T123", "HPE"),
        (public_host_firmware, "acme.example 1.0", None),
        (public_host_firmware, "DellInc 2.1", None),
        (public_host_firmware, "2.4", None),
        (public_host_firmware, "microcode 0xd0003a5", "microcode 0xd0003a5"),
        (public_host_firmware, "microcode 0xd0003a5 of alice", None),
        # Memory is numbers, sizes, types and speeds.
        (public_memory, "16 x 32 GB DDR4 3200 MT/s", "16 x 32 GB DDR4 3200 MT/s"),
        (
            public_memory,
            "1 x 1 MB DDR5, 8 x No Module Installed",
            "1 x 1 MB DDR5, 8 x No Module Installed",
        ),
        (public_memory, "1 x 32 GB DDR4, 1 x S64GNE0T123", "1 x 32 GB DDR4"),
        (public_memory, "1 x alice@acme.example", None),
        (public_memory, "1 x 32 GB /scratch/alice", None),
        # A version of this program has no local part.
        (public_version, "0.1.0", "0.1.0"),
        (public_version, "0.1.0.dev3+alice.2026", "0.1.0.dev3"),
        (public_version, "of alice", None),
    ],
)
def test_what_is_published_of_a_text(form, text, published):
    assert form(text) == published


@pytest.mark.parametrize("value", [None, 7, "", " ", "AMD\n", "x" * 500, "A-" * 50, "AMD  EPYC"])
def test_what_is_no_text_of_the_form_is_not_published(value):
    assert [form(value) for form in FORMS] == [None] * len(FORMS)


WORDS = st.sampled_from(["AMD", "EPYC 7413", "HPE", "2.4", "1 x 32 GB DDR4", "Samsung"])
NAMES = st.text(string.ascii_letters + string.digits, min_size=1, max_size=12)
SECRETS = st.one_of(
    st.emails(),
    st.builds("{}@{}".format, NAMES, NAMES),
    st.lists(NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names)),
    st.lists(NAMES, min_size=2, max_size=4).map("/".join),
    st.lists(NAMES, min_size=2, max_size=4).map("\\".join),
    st.lists(st.text(string.ascii_lowercase, min_size=2, max_size=9), min_size=2, max_size=4).map(
        ".".join
    ),
    st.ip_addresses().map(str),
    st.uuids().map(str),
    st.binary(min_size=6, max_size=6).map(lambda address: address.hex(":")),
)


@given(WORDS, SECRETS, st.sampled_from([" ", "", ", ", "_", " (", "-"]), WORDS | st.just(""))
def test_no_text_with_an_address_or_a_path_is_published(before, secret, between, after):
    for text in (f"{before}{between}{secret}", f"{before} {secret} {after}", f"{secret} {after}"):
        for form in FORMS:
            assert secret.lower() not in str(form(text)).lower()


@given(st.text(string.ascii_uppercase + string.digits, min_size=4, max_size=20), WORDS)
def test_no_text_with_the_serial_number_of_the_device_is_published(serial, words):
    for form in (public_device_model, public_device_firmware):
        for text in (serial, f"{words} {serial}", f"{words}-{serial.lower()}", f"X{serial}"):
            assert form(text, [serial]) is None


@given(st.text(string.ascii_uppercase + string.digits, min_size=9, max_size=20))
def test_no_serial_number_passes_in_a_text_of_the_host(serial):
    assume(any(sign.isdigit() for sign in serial))
    for text in (f"HPE {serial}", f"1 x {serial}", f"AMD EPYC {serial}", serial):
        for form in (public_processor_model, public_host_firmware, public_memory):
            assert serial not in str(form(text))
