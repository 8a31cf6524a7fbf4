"""What is set is saved first, and given back whatever happens in between."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from fake_kernel import AMD, BOOT, CPUS, THP, UNCORE, Try, settings
from hypothesis import example, given
from hypothesis import strategies as st

NODE = "sys/devices/system/node/node"
PAGES = "hugepages/hugepages-2048kB/nr_hugepages"
LARGE = "hugepages/hugepages-1048576kB/nr_hugepages"
POLICY = "sys/devices/system/cpu/cpufreq/policy"
WEIGHTS = "sys/kernel/mm/mempolicy/weighted_interleave"


@pytest.fixture
def tried(tmp_path: Path) -> Try:
    return Try(tmp_path)


nodes = st.sampled_from(["all", "0", "2", "10"])
# More than a node gives at most, now and then: then it is an error, and still given back.
counts = st.fixed_dictionaries({}, optional={"2M": st.integers(0, 1600), "1G": st.just(1)})
wishes = st.fixed_dictionaries(
    {},
    optional={
        "huge_pages": st.dictionaries(nodes, counts, max_size=3),
        "governor": st.sampled_from(["performance", "powersave", None]),
        "turbo": st.sampled_from([True, False, None]),
        "transparent_huge_pages": st.sampled_from(["always", "madvise", "never", None]),
        "transparent_huge_pages_defrag": st.sampled_from(["defer", "never", None]),
        "numa_balancing": st.sampled_from([0, 1, 2, False, None]),
        "weighted_interleave": st.dictionaries(nodes, st.integers(1, 255), max_size=3),
        "clock_mhz": st.sampled_from([800, 2000, 3600, None]),
        "uncore_mhz": st.sampled_from([800, 2400, None]),
        "idle_latency_us": st.sampled_from([0, 10, 500, None]),
        "prefetchers": st.sampled_from([True, False, None]),
        "smt": st.sampled_from([False, None]),
    },
)


@hypothesis.settings(max_examples=12)
@example([{"turbo": False}], True, None)  # resets the upper limits of clocks
@example([{"smt": False}, {"turbo": False}], True, None)  # also of siblings that are off
@example([{"prefetchers": False, "clock_mhz": 800}], True, None)
@example([{"governor": "performance", "huge_pages": {"2": {"2M": 1600}}}], True, None)
@given(st.lists(wishes, min_size=1, max_size=3), st.booleans(), st.none() | st.integers(0, 12))
def test_whatever_was_set_is_given_back(
    wanted: list[dict[str, Any]], knows_bandwidths: bool, killed_before: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tried = Try(Path(folder))
        before = tried.kernel.tree()
        tried.kernel.knows_bandwidths = knows_bandwidths
        tried.kernel.writes_left = killed_before
        try:
            for wish in wanted:
                earlier = tried.kernel.tree()
                try:
                    tried.configure(**wish)
                except settings.StateError as error:
                    assert "instead of" in str(error)
                    if knows_bandwidths:
                        assert tried.kernel.tree() == earlier
        except KeyboardInterrupt:
            assert tried.file.exists()
        tried.kernel.writes_left = None
        tried.restore()
        after = tried.kernel.tree()
        if not knows_bandwidths:  # no kernel goes back then, and the weights are what they were
            before.pop(f"{WEIGHTS}/auto"), after.pop(f"{WEIGHTS}/auto")
        assert after == before
        assert not tried.file.parent.exists()


@pytest.mark.thorough
@hypothesis.settings(max_examples=25)
@given(wishes)
def test_a_trial_tells_and_changes_nothing_and_a_second_run_neither(wish: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tried = Try(Path(folder))
        tried.kernel.most = {"2048kB": 1600, "1048576kB": 3}
        wish.pop("smt", None)  # files of siblings that are off cannot be read back
        before = tried.kernel.tree()
        trial = tried.configure(check=True, **wish)
        assert tried.kernel.tree() == before
        assert not tried.file.exists()
        assert tried.configure(**wish) == trial
        for name, value in trial["values"].items():
            assert tried.kernel.read(name) == value
        assert not tried.configure(**wish)["changed"]
        assert trial["changed"] == tried.restore(check=True)["changed"] == tried.file.exists()
        tried.restore()
        assert not tried.restore()["changed"]  # nothing is saved any more


def test_all_stands_for_every_node_and_a_node_of_its_own_outranks_it(tried: Try) -> None:
    tried.configure(huge_pages={"all": {"2M": 9}, "2": {"2M": 0, "1G": 2}})
    assert [tried.kernel.read(f"{NODE}{n}/{PAGES}") for n in (0, 2, 10)] == ["9", "0", "9"]
    assert [tried.kernel.read(f"{NODE}{n}/{LARGE}") for n in (0, 2, 10)] == ["0", "2", "0"]


def test_every_clock_that_runs_gets_the_governor(tried: Try) -> None:
    tried.configure(governor="performance")
    tree = tried.kernel.tree()
    found = [tree[f"{POLICY}{number}/scaling_governor"] for number in (0, 1, 2)]
    assert found == ["performance", "performance", "powersave"]


def test_intel_is_asked_the_other_way_round(tried: Try) -> None:
    switch = tried.kernel.root / settings.NO_TURBO
    switch.parent.mkdir()
    switch.write_text("0")
    tried.configure(turbo=False)
    assert switch.read_text() == "1"
    tried.restore()
    assert switch.read_text() == "0"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (
            {"huge_pages": {"7": {"2M": 1}}},
            "pages of 2M: node 7 has no such file; node 0, 2, 10 has",
        ),
        (
            {"huge_pages": {"all": {"16M": 1}}},
            "pages of 16M: this kernel has no such files for any node",
        ),
        ({"huge_pages": {"all": {"2MB": 1}}}, "2MB is not a page size such as 2M or 1G"),
        ({"huge_pages": {"all": 5}}, "node all needs a count for each size, as in {2M: 512}"),
        ({"huge_pages": {"0": {"2M": -1}}}, "-1 is not a whole number from 0"),
        ({"huge_pages": {"0": {"2M": True}}}, "True is not a whole number from 0"),
        ({"huge_pages": {"2": {"2M": 1, "1G": 8}}}, "node 2 has 8 GiB of memory; 8.002 GiB of"),
        ({"governor": "ondemand"}, "policy0 knows performance, powersave, not ondemand"),
        ({"transparent_huge_pages": "defer"}, "knows always, madvise, never, not defer"),
        ({"numa_balancing": 4}, "4 is not a whole number from 0 to 3"),
        ({"clock_mhz": 5000}, "policy0: 5000 is not a whole number from 800 to 3600 MHz"),
        ({"uncore_mhz": 700}, "package_00_die_00: 700 is not a whole number from 800 to 2400 MHz"),
        ({"idle_latency_us": -1}, "-1 is not a whole number from 0 to 1000000"),
        ({"weighted_interleave": {"0": 0}}, "0 is not a whole number from 1 to 255"),
        ({"weighted_interleave": {"1": 1}}, "node 1 has no such file; node 0, 2, 10 has"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(
    tried: Try, wanted: dict[str, Any], words: str
) -> None:
    before = tried.kernel.tree()
    [setting] = wanted
    with pytest.raises(settings.StateError) as refusal:
        tried.configure(**{"turbo": False, **wanted})
    assert str(refusal.value).startswith(f"host_state_{setting}: ")
    assert words in str(refusal.value)
    assert tried.kernel.tree() == before
    assert not tried.file.exists()


@pytest.mark.parametrize(
    ("setting", "value", "lacking"),
    [
        ("governor", "performance", "sys/devices/system/cpu/cpufreq"),
        ("turbo", False, "sys/devices/system/cpu/cpufreq"),
        ("clock_mhz", 2000, "sys/devices/system/cpu/cpufreq"),
        ("uncore_mhz", 2000, "sys/devices/system/cpu/intel_uncore_frequency"),
        ("idle_latency_us", 10, "sys/devices/system/cpu"),
        ("prefetchers", False, "dev/cpu"),
        ("smt", False, "sys/devices/system/cpu/smt"),
        ("transparent_huge_pages", "never", THP),
        ("numa_balancing", 0, "proc/sys/kernel"),
        ("weighted_interleave", {"all": 2}, WEIGHTS),
        ("huge_pages", {"all": {"2M": 1}}, NODE.rpartition("/")[0]),
    ],
)
def test_what_a_kernel_lacks_is_refused_by_name(
    tried: Try, setting: str, value: Any, lacking: str
) -> None:
    (tried.kernel.root / lacking).rename(tried.kernel.root / "elsewhere")
    if lacking == "proc/sys/kernel":  # the boot's name stays
        (tried.kernel.root / BOOT).parent.mkdir(parents=True)
        (tried.kernel.root / BOOT).write_text("first")
    with pytest.raises(settings.StateError, match=f"host_state_{setting}: .*(no|neither)"):
        tried.configure(**{setting: value})


def test_all_that_is_refused_is_named_at_once(tried: Try) -> None:
    with pytest.raises(settings.StateError, match=r"governor: .*; host_state_numa_balancing: "):
        tried.configure(governor="ondemand", numa_balancing=9)


def test_fewer_pages_than_asked_are_an_error_with_figures(tried: Try) -> None:
    with pytest.raises(settings.StateError) as error:
        tried.configure(huge_pages={"2": {"2M": 1600}}, numa_balancing=0)
    assert "node 2 gives 1500 instead of 1600 huge pages of 2 MiB, with 1 GiB" in str(error.value)
    assert tried.kernel.read(f"{NODE}2/compact") == "1"  # it was asked to make room


@pytest.mark.parametrize("configured", [False, True])
def test_what_fails_half_way_gives_back_what_it_had_set(tried: Try, configured: bool) -> None:
    if configured:
        tried.configure(governor="performance", huge_pages={"0": {"2M": 3}})
    before = tried.kernel.tree()
    saved = tried.file.read_text() if configured else None
    with pytest.raises(settings.StateError, match="all settings have their values from before"):
        tried.configure(huge_pages={"0": {"2M": 7}, "2": {"2M": 1600}}, numa_balancing=0)
    assert tried.kernel.tree() == before
    assert (tried.file.read_text() if configured else tried.file.exists()) == (saved or False)


def written(tried: Try) -> list[str]:
    """Names of files, in the order in which they are written from now on."""
    order: list[str] = []
    write = tried.kernel.write
    tried.kernel.write = lambda name, value: (order.append(name), write(name, value))
    return order


def test_memory_is_given_back_before_it_is_asked_for(tried: Try) -> None:
    order = written(tried)
    tried.configure(huge_pages={"0": {"2M": 9, "1G": 1}, "10": {"2M": 0}})
    assert order == [f"{NODE}10/{PAGES}", f"{NODE}0/{LARGE}", f"{NODE}0/{PAGES}"]


def test_the_first_value_is_the_one_that_is_kept(tried: Try) -> None:
    for governor in ("performance", "powersave", "performance"):
        tried.configure(governor=governor)
    saved = json.loads(tried.file.read_text())["values"]
    assert saved[f"{POLICY}0/scaling_governor"] == "powersave"
    assert saved[f"{POLICY}0/energy_performance_preference"] == "balance_performance"


def boot(tried: Try, name: str) -> dict[str, str]:
    """Another boot, with other values than the former had."""
    (tried.kernel.root / BOOT).write_text(name)
    (tried.kernel.root / f"{NODE}0/{PAGES}").write_text("64")
    return tried.kernel.tree()


def test_nothing_is_written_over_another_boot_whose_values_are_saved(tried: Try) -> None:
    wanted: dict[str, Any] = {"huge_pages": {"0": {"2M": 3}}}
    tried.configure(**wanted)
    after = boot(tried, "second")
    assert "has booted since" in tried.restore()["warning"]
    assert tried.kernel.tree() == after
    assert not tried.file.exists()
    tried.configure(numa_balancing=0, **wanted)
    after = boot(tried, "third")
    assert "has booted since" in tried.configure(**wanted)["warning"]
    tried.restore()
    assert tried.kernel.tree() == after


@pytest.mark.parametrize("lock", ["tmp/chaosity-measuring.lock", "run/chaosity/measuring.lock"])
def test_nothing_changes_under_a_measurement(tried: Try, lock: str) -> None:
    """The second lock is that of provisioning, and counts if it is there."""
    before, path = tried.kernel.tree(), tried.kernel.root / lock
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH)  # two changes at once would save each other's values
        with pytest.raises(settings.StateError, match=f"/{lock} is held.*measuring|is measuring"):
            tried.configure(numa_balancing=0)
        assert not tried.file.exists()
    assert tried.kernel.tree() == before
    tried.configure(numa_balancing=0)


def test_a_setting_that_fails_as_a_held_lock_does_is_not_called_a_measurement(
    tried: Try, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "try again")

    monkeypatch.setattr(tried.kernel, "read", busy)
    with pytest.raises(BlockingIOError, match="try again"):
        tried.configure(numa_balancing=0)


def test_two_starts_at_once_share_the_lock_file(
    tried: Try, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other start creates the file between this one's look and its own attempt."""
    path = tried.kernel.root / "tmp/chaosity-measuring.lock"
    really_open = os.open

    def other_is_faster(name: Any, flags: int, mode: int = 0o777, **keys: Any) -> int:
        if flags & os.O_CREAT and not path.exists():
            os.mknod(path)
        return really_open(name, flags, mode, **keys)

    monkeypatch.setattr(os, "open", other_is_faster)
    tried.configure(numa_balancing=0)
    assert path.exists()


def test_a_lock_that_somebody_replaced_by_a_fifo_is_refused(tried: Try) -> None:
    before = tried.kernel.tree()
    os.mkfifo(tried.kernel.root / "tmp/chaosity-measuring.lock")
    with pytest.raises(settings.StateError, match="must be a regular file"):
        tried.configure(numa_balancing=0)
    (tried.kernel.root / "tmp/chaosity-measuring.lock").unlink()
    assert tried.kernel.tree() == before


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"boot_id": "first"}'])
def test_a_file_that_holds_something_else_is_refused(tried: Try, content: str) -> None:
    tried.file.parent.mkdir()
    tried.file.write_text(content)
    for play in (tried.restore, tried.configure):
        with pytest.raises(settings.StateError, match="does not hold what was saved"):
            play()
    assert tried.file.read_text() == content


def test_what_is_gone_is_named_and_what_was_saved_is_kept(tried: Try) -> None:
    tried.configure(numa_balancing=0, turbo=False)
    (tried.kernel.root / settings.NUMA_BALANCING).unlink()
    with pytest.raises(settings.StateError, match="/proc/sys/kernel/numa_balancing, gone since"):
        tried.restore()
    assert tried.file.exists()


@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_every_user_can_read_what_was_saved_whatever_the_umask_is(tried: Try, umask: int) -> None:
    before = os.umask(umask)
    try:
        tried.configure(numa_balancing=0)
    finally:
        os.umask(before)
    assert tried.file.parent.stat().st_mode & 0o777 == 0o755
    assert tried.file.stat().st_mode & 0o777 == 0o644


def test_a_folder_that_others_use_stays(tried: Try) -> None:
    tried.configure(numa_balancing=0)
    other = tried.file.with_name("other")
    other.touch()
    tried.restore()
    assert list(tried.file.parent.iterdir()) == [other]


@pytest.mark.parametrize("clock", [800, 1500, 3050, 3600])
def test_both_limits_of_every_clock_that_runs_are_equal(tried: Try, clock: int) -> None:
    """Below, between and above the present limits: a lower limit never exceeds the upper."""
    tried.configure(clock_mhz=clock)
    for number in (0, 1):
        for end in ("min", "max"):
            assert tried.kernel.read(f"{POLICY}{number}/scaling_{end}_freq") == f"{clock}000"
    tried.configure(uncore_mhz=900)
    assert [tried.kernel.read(f"{UNCORE}/{end}_freq_khz") for end in ("min", "max")] == [
        "900000"
    ] * 2


def test_a_driver_with_a_table_of_clocks_gets_one_of_them(tried: Try) -> None:
    table = tried.kernel.root / f"{POLICY}1/scaling_available_frequencies"
    table.write_text("2450000 2000000 1500000")
    with pytest.raises(settings.StateError, match="policy1 knows 1500, 2000, 2450 MHz, not 2100"):
        tried.configure(clock_mhz=2100)
    tried.configure(clock_mhz=2000)


def test_deeper_idle_states_are_off_and_the_others_on(tried: Try) -> None:
    tried.configure(idle_latency_us=2)
    for cpu in range(4):
        states = [f"{CPUS}/cpu{cpu}/cpuidle/state{number}/disable" for number in range(3)]
        assert [tried.kernel.read(name) for name in states] == ["0", "0", "1"]


@pytest.mark.parametrize(("processor", "bits"), [(None, 0b1111), (AMD, 0b101111)])
def test_prefetchers_keep_the_other_bits(tried: Try, processor: str | None, bits: int) -> None:
    if processor:
        tried.kernel.put_registers(processor)
    before = tried.kernel.registers()
    tried.configure(prefetchers=False)
    assert tried.kernel.registers() == [hex(1 << 60 | bits)] * 4
    tried.restore()
    assert tried.kernel.registers() == before


def test_unknown_prefetchers_are_refused(tried: Try) -> None:
    cpuinfo = tried.kernel.root / "proc/cpuinfo"
    cpuinfo.write_text("vendor_id : AuthenticAMD\ncpu family : 23\n")
    with pytest.raises(settings.StateError, match="is known for AuthenticAMD family 23"):
        tried.configure(prefetchers=False)
    cpuinfo.write_text("Features : fp asimd\n")
    with pytest.raises(settings.StateError, match="is known for unknown family"):
        tried.configure(prefetchers=False)


def test_siblings_go_last_and_come_back_first(tried: Try) -> None:
    before, order = tried.kernel.tree(), written(tried)
    wanted = {"governor": "performance", "prefetchers": False, "smt": False}
    answer = tried.configure(**wanted)
    assert order[-1] == settings.SMT
    assert "the next snakemake discovers and plans again" in answer["warning"]
    assert not tried.configure(**wanted)["changed"]  # the CPUs that are left have all of it
    trial = tried.restore(check=True)
    assert f"/{settings.SMT}: on" in trial["diff"]["after"]
    order.clear()
    assert "discovers and plans again" in tried.restore()["warning"]
    assert order[0] == settings.SMT
    assert tried.kernel.tree() == before


def test_siblings_are_switched_on_alone(tried: Try) -> None:
    (tried.kernel.root / settings.SMT).write_text("off")
    with pytest.raises(settings.StateError, match="run it first without host_state_governor"):
        tried.configure(smt=True, governor="performance")
    tried.configure(smt=True)
    tried.configure(smt=True, governor="performance")


@pytest.mark.parametrize("state", ["forceoff", "notsupported", "notimplemented"])
def test_smt_that_cannot_be_switched_is_refused(tried: Try, state: str) -> None:
    (tried.kernel.root / settings.SMT).write_text(state)
    with pytest.raises(settings.StateError, match=f"SMT cannot be switched, since .* is {state}"):
        tried.configure(smt=False)


@pytest.mark.parametrize("wanted", [{"prefetchers": False}, {"uncore_mhz": 900}])
def test_what_discovery_does_not_see_is_said(tried: Try, wanted: dict[str, Any]) -> None:
    assert "edit the note in components/system.json" in tried.configure(**wanted)["warning"]
    assert "edit the note" in tried.restore()["warning"]
    assert tried.configure(governor="performance")["warning"] is None
