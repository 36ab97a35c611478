# make demo   plan and check for a bundled recorded host; needs only Python >= 3.9 with venv
# make test   linters, types, unit tests
# make live   the real driver and runtimes; needs root and Debian (installs packages, builds a rig of about 11 GB)
# make fuzz   N mutated inputs for every parser and document (N=1000000 for a night); a failing one is kept as a test
# make bench  speed, as ratios in one run
# make bench-big  how time and memory grow with what there is to look at
# make tars   N generated tar archives, read as tarfile and GNU tar read them (N=100000)
# make stacks real images for AMD's and Intel's GPUs from PyPI and Debian, read by LLVM's tools and by gpubind (CONTRIBUTING.md);
#             NAMES='jax cupy' takes those that begin so
# make law    the laws of the memo after N changes, of N injected errors (N=5000), of records on RECORDED hosts (RECORDED=25)
# make mutants  changes of one expression of gpubind that no test notices, by room (SEED=1 N=100; CONTRIBUTING.md)
# make dist   the wheel, the source archive, gpubind.pyz (one file, any Python >= 3.9) and the man page, in dist/; the file
#             has byte code of the Pythons found, or of PYTHONS='python3.9 /opt/python/bin/python3.12' (none: PYTHONS=none)
# make packages  these, a .deb, an .rpm (needs dpkg-deb, rpmbuild) and their software bill of materials; the time of their files
#             is SOURCE_DATE_EPOCH or that of the commit. packaging/try_package installs one, runs and removes it
# make fix    format and mend what ruff can

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
HOST   := debian13-nvidia550

fuzz: N ?= 100000
law:  N ?= 5000
law:  RECORDED ?= 25
tars: N ?= 100000
mutants: N ?= 100
mutants: SEED ?= 1
stacks: ROOM ?= .stacks

.PHONY: demo test live fuzz bench bench-big law tars mutants stacks dist packages fix clean

demo: $(VENV)/installed
	$(BIN)/gpubind plan --nv --host $(HOST) --format table
	$(BIN)/gpubind explain libcuda.so.1 --host $(HOST)
	$(BIN)/gpubind check --nv --host $(HOST) --image docs/examples/cuda13.sif --program /opt/app/solve || test $$? -eq 1
	@echo 'The demo is done: check has named what the example image lacks.'

test: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell gpubind docs etc contrib packaging benchmarks *.md
	$(BIN)/python -m pytest -n auto --dist loadfile

live: $(VENV)/installed-test
	rm -rf .live-seen
	PYTHON=$(BIN)/python tests/live/rig/build
	$(BIN)/python -m pytest -m live -n auto --dist loadfile --no-loadscope-reorder --durations 40 tests/live
	$(BIN)/python -m tests.live.table

fuzz: $(VENV)/installed-test
	nice $(BIN)/python -m tests.fuzz --cases $(N) $(if $(SEED),--seed $(SEED))

bench: $(VENV)/installed-test
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/where.py
	$(BIN)/python benchmarks/starts.py
	$(BIN)/python benchmarks/memo.py

law: $(VENV)/installed-test
	$(BIN)/python -m tests.law --changes $(N) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.law.errors --cases $(N) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.law.records --hosts $(RECORDED) $(if $(SEED),--seed $(SEED))

tars: $(VENV)/installed-test
	nice $(BIN)/python -m tests.tars --archives $(N) $(if $(SEED),--seed $(SEED))

mutants: $(VENV)/installed-test
	nice $(BIN)/python -m tests.mutants --seed $(SEED) --count $(N) $(MAP)

stacks: $(VENV)/installed-test
	mkdir -p $(ROOM)
	$(BIN)/python -m tests.stacks $(ROOM) $(NAMES)

bench-big: $(VENV)/installed-test
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/stored.py

dist: build/venv
	build/venv/bin/python -m hatchling build -d dist
	build/venv/bin/python packaging/pyz.py dist/gpubind.pyz $(PYTHONS)
	PYTHONPATH=. build/venv/bin/python packaging/man.py dist/gpubind.1

packages: dist
	build/venv/bin/python packaging/sbom.py dist/gpubind.cdx.json
	PYTHONPATH=. build/venv/bin/python packaging/deb.py dist
	PYTHONPATH=. build/venv/bin/python packaging/rpm.py dist

fix: $(VENV)/installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) dist build .live-seen .mutants .stacks .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Downloads fail now and then; three tries. pip first: 23.2 chooses wrong wheels for another Python's directory, as the
# live tests need them.
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check --retries 5
define install
	for try in 1 2 3; do $(PIP) --upgrade pip && $(PIP) -e '$(1)' && break; \
	  test $$try -lt 3 || exit 1; sleep 5; done
	touch $@
endef

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

build/venv:
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install -q --disable-pip-version-check --retries 5 'hatchling>=1.26' || { rm -rf $@; exit 1; }

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(call install,.)

$(VENV)/installed-test: pyproject.toml | $(VENV)/bin/python
	$(call install,.[test])
	touch $(VENV)/installed
