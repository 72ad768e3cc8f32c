"""Results of runs as data frames: tokens, costs, checkpoints, statistics, tables, and the paper's numbers.

For analyses, `load("runs/demo")` opens one run and `load_all("runs/paper")` all runs in a folder.
docs/data.md lists their tables and columns, and has examples.
"""

from speedrunner.results.loading import Run, Runs, TableName, load, load_all
from speedrunner.store.files import StorageError
from speedrunner.store.run_data import RunData
