# Thin names for the real commands; `make` alone lists them.
INVENTORY ?= inventories/localhost

BIN := .venv/bin
# What Snakemake and Ansible start finds the project's own programs without an activated environment.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Ansible insists on UTF-8, and the tools' messages are read in one language.
export LC_ALL := C.UTF-8
# Modules of another environment would shadow the locked ones.
unexport PYTHONPATH
# Without bytecode, each of the many processes of a run would compile the modules that have changed
# since the installation, and each process of pytest all tests: 7 s of processor time.
unexport PYTHONDONTWRITEBYTECODE

# Without an entry for the user, a playbook ends with an error that does not say so.
PLAYBOOK = @mkdir -p build/provisioned; id -un >/dev/null 2>&1 || { \
	echo "error: the user $$(id -u) has no entry in /etc/passwd, and Ansible needs one: add it" >&2; exit 2; }; \
	$(BIN)/ansible-playbook

.DEFAULT_GOAL := help
.PHONY: help run demo test test-thorough test-all test-tools lab lab-down lab-test slurm-test fresh-test golden fuzz provision environment redfish lint format docs site bench lock clean distclean delete-results

help: ## list these targets
	@awk -F ':.*## ' '/^##@ / {print "\n" substr($$0, 5) ":"} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

# Time of the measurements of a host, such as 2h; auto is 30 minutes, and more only where the node
# matrices need more. A plan that takes less time is measured completely. A config or
# profile of your own may choose the replicates instead, so then only a BUDGET that you give counts.
BUDGET ?= auto
OWN_CONFIG = $(filter --config -C --configfile --configfiles --profile,$(SNAKEMAKE_ARGUMENTS))
# The default inventory is that of the config. Of two options --config, Snakemake takes the last.
GIVEN = $(strip $(if $(filter-out file,$(origin INVENTORY)),inventory=$(INVENTORY)) \
	$(if $(filter-out file,$(origin BUDGET)),budget=$(BUDGET)))
ifneq ($(and $(GIVEN),$(filter --config -C,$(OWN_CONFIG))),)
$(error Snakemake takes one --config: add $(GIVEN) to that of SNAKEMAKE_ARGUMENTS, and leave out INVENTORY and BUDGET)
endif
ifeq ($(OWN_CONFIG)$(filter budget=%,$(GIVEN)),)
GIVEN += budget=$(BUDGET)
endif
MEASURED = $(if $(GIVEN),--config $(GIVEN))
# The hosts that are measured are the hosts that are provisioned.
PROVISIONED = $(or $(patsubst inventory=%,%,$(filter inventory=%,$(SNAKEMAKE_ARGUMENTS))),$(INVENTORY))

# The playbook writes this file if this machine is the only host. Until something that provisioning reads,
# or something that is installed, is newer than the file, nothing is to be done. Hosts that are reached over
# a network are provisioned each time, since only a look at them shows what they have. The kernels are
# built for this processor, so its features are part of the name.
FEATURES := $(shell grep -m 1 -E '^(flags|Features)' /proc/cpuinfo 2>/dev/null | cksum | cut -d ' ' -f 1)
DONE = build/provisioned/$(FEATURES)-$(subst /,-,$(PROVISIONED))
SOURCES := provision.yml playbooks/firmware.yml ansible.cfg roles $(wildcard group_vars host_vars $(PROVISIONED)) \
	$(addprefix workflow/chaosity/,runner place records __init__.py cpusets.py errors.py documents/inventory.py)
# The lists of installed packages change with each installation, upgrade and removal.
INSTALLED := $(wildcard build/kernels/* /var/lib/dpkg/status /usr/lib/sysimage/rpm/rpmdb.sqlite /var/lib/rpm/rpmdb.sqlite)
DUE := $(shell find $(SOURCES) -type f ! -name '*.pyc') $(INSTALLED)
# The output of an inventory that is a program may change each time.
ifneq ($(wildcard $(PROVISIONED)),)
DUE += $(if $(shell find $(PROVISIONED) -type f -perm -u+x),provision_each_time)
endif

##@ Use

run: .venv/run.installed $(DONE) ## set up, measure this machine for about half an hour at most, or BUDGET=2h, and report; the last line is the path of the report
	@$(BIN)/snakemake $(SNAKEMAKE_ARGUMENTS) $(MEASURED)
	@$(BIN)/chaosity reports

.PHONY: provision_each_time
$(DONE): .venv/run.installed $(DUE)
	$(PLAYBOOK) -i $(PROVISIONED) provision.yml --tags tools -e provisioned_file=$@

DEMO = results/demo
demo: .venv/run.installed ## simulate the server of the paper and report its faults: three minutes, without root or tools
	@$(BIN)/chaosity simulate --inventory inventories/demo --results $(DEMO)
	@$(BIN)/snakemake --config inventory=inventories/demo results=$(DEMO)
	@$(BIN)/chaosity reports --results $(DEMO)

provision: .venv/run.installed ## prepare the inventory's hosts as it declares: tools, kernels, runner, settings of host and firmware
	$(PLAYBOOK) -i $(PROVISIONED) provision.yml -e provisioned_file=$(DONE)

environment: .venv/test.installed ## make the virtual environment, test tools included

redfish: .venv/firmware.installed ## add to the environment what playbooks/firmware.yml needs; half a gigabyte

##@ Test a change

# Tests marked `alone` measure, pin threads or change a setting of the kernel, so nothing runs next to them.
HERE = not fresh and not lab and not slurm
FAST = $(HERE) and not thorough
THOROUGH = $(HERE) and thorough
# Each core begins with neighbouring tests, which share their prepared data.
ON_ALL_CORES = $(BIN)/pytest --numprocesses auto --dist worksteal $(PYTEST_ARGUMENTS) -m
# Reading all tests takes ten seconds, so here only files with such tests are read. tests/conftest.py
# ends a run that finds other files with them.
ALONE = $(BIN)/pytest $$(grep -rl --include='test_*.py' 'mark\.alone' tests) $(PYTEST_ARGUMENTS) -m

# Properties are tried on other examples each time. A failure prints its example: add it to the test.
RANDOM = --hypothesis-profile=random

test: test-tools ## set up and run every kind of test once: 7 to 18 minutes on two cores
	$(ON_ALL_CORES) '$(FAST) and not alone'
	$(ALONE) '$(FAST) and alone'

test-thorough: test-tools ## run the tests that `make test` leaves out
	$(ON_ALL_CORES) '$(THOROUGH) and not alone' $(RANDOM)
	$(ALONE) '$(THOROUGH) and alone' $(RANDOM)

test-all: test test-thorough ## run everything that CI runs but fresh-test: 30 to 55 minutes on two cores

test-tools: .venv/test.installed $(DONE)-tests

$(DONE)-tests: .venv/test.installed tests/provision.yml $(DUE)
	$(PLAYBOOK) -i $(PROVISIONED) provision.yml --tags tools -e @tests/provision.yml -e provisioned_file=$@

lab: .venv/test.installed ## boot the virtual machines of tests/lab/inventory; for a single one LAB_ARGUMENTS='--limit small'
	@$(BIN)/ansible-playbook -i tests/lab/inventory tests/lab/lab.yml $(LAB_ARGUMENTS)

lab-down: .venv/test.installed ## remove the virtual machines; their system image stays in ~/.cache/chaosity
	@$(BIN)/ansible-playbook -i tests/lab/inventory tests/lab/lab.yml $(LAB_ARGUMENTS) -e virtual_lab_state=absent

lab-test: .venv/test.installed ## run the tests that need virtual machines, for hours under emulation; boots and removes them; needs root
	$(BIN)/pytest -m lab tests/lab $(PYTEST_ARGUMENTS)

slurm-test: test-tools ## set up a Slurm with two nodes on this machine, run its tests for 8 to 23 minutes, remove it; needs root
	$(BIN)/pytest -m slurm tests/slurm $(PYTEST_ARGUMENTS)

FRESH_RELEASES ?= bookworm trixie
fresh-test: ## set the last commit up in a bare Debian 12 and 13, measure and test there, 10 minutes each; needs root; FRESH_RELEASES=trixie for one
	@sh tests/fresh/run.sh $(FRESH_RELEASES)

lint: .venv/test.installed ## run every linter and format check
	$(BIN)/pytest tests/unit/test_lint.py

golden: .venv/test.installed ## write the transcripts of tests/golden anew and show what changed: 2 minutes; GOLDEN=fleet for one subject
	@CHAOSITY_WRITE_GOLDEN=1 $(BIN)/pytest --numprocesses auto --quiet tests/golden $(if $(GOLDEN),-k '$(GOLDEN)')
	@git --no-pager diff --stat -- tests/golden
	@git --no-pager diff -- tests/golden

fuzz: .venv/test.installed ## give every parser sixty times as much changed and generated input as `make test`: 10 minutes
	$(BIN)/pytest --numprocesses auto --dist worksteal --hypothesis-profile=many $(PYTEST_ARGUMENTS) \
		$$(grep -rl --include='test_*.py' check_any_input tests)

##@ Write files

docs: .venv/run.installed ## write docs/reference from the commands, types, experiments and benchmarks
	$(BIN)/python docs/write_reference.py

site: .venv/docs.installed ## make a web site of docs/ in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

format: .venv/test.installed ## format Python and Snakemake files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow/Snakefile workflow/rules

bench: .venv/run.installed ## compare with simpler programs, simulate intervals and faults, and write docs/validation.md: an hour; BENCH_ARGUMENTS=streaming for one part
	$(BIN)/python bench/run.py $(BENCH_ARGUMENTS)

lock: .venv/run.installed ## bring uv.lock in line with pyproject.toml; LOCK_ARGUMENTS=--upgrade for the newest versions
	@$(BIN)/uv lock $(LOCK_ARGUMENTS)
# The addresses of another index are of use to nobody else.
	@sed -E -i 's#(registry = ")[^"]*#\1https://pypi.org/simple#; s#(url = ")https://[^/"]*/(.*/)?packages/#\1https://files.pythonhosted.org/packages/#' uv.lock

##@ Remove files

clean: ## remove what was built: build/ .snakemake/ and caches; results/ stays
# A machine must not go on without the files that it is made of.
	@for machine in $(wildcard build/lab/*/machine.json); do \
		PYTHONPATH=tests/lab/roles/virtual_lab/files python3 -m virtual_lab stop --force "$${machine%/*}"; done
	@for bmc in $(wildcard build/lab/bmc); do \
		PYTHONPATH=tests/lab/roles/virtual_bmc/files python3 -m virtual_bmc stop "$$bmc" >/dev/null; done
	@echo "Removing build/ .snakemake/ .pytest_cache/ .ruff_cache/ .hypothesis/ .ansible/"
	@rm -rf build .snakemake .pytest_cache .ruff_cache .hypothesis .ansible

distclean: clean ## remove the same files and the virtual environment; results/ stays
	@echo "Removing .venv/ workflow/chaosity.egg-info/"
	@rm -rf .venv workflow/chaosity.egg-info

# The page in results/ belongs to the project.
delete-results: ## delete everything that was measured: results/*; asks before, unless YES=1
	@test "$(YES)" = 1 || { printf 'Delete all measurements below results/? They cannot be restored. [y/N] '; \
		read -r answer && test "$$answer" = y; } || { echo "Nothing is deleted."; exit 1; }
	@! test -d results || find results -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +

# The file says that the environment holds what the lock names; a newer lock calls for another look.
EXTRAS_firmware = --extra firmware
EXTRAS_test = --extra firmware --extra lab --extra test
EXTRAS_docs = --extra docs
.venv/%.installed: uv.lock pyproject.toml workflow/environment.sh
	@sh workflow/environment.sh $(EXTRAS_$*)
	@touch $@ .venv/run.installed
