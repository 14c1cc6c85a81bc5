"""R's package `segmented` on the same sets, by Rscript; None where R or the package is missing."""

from __future__ import annotations

import csv
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.hinges.laws import Samples

# Breaks, then the ends of the gradient intervals, the slopes' ends, and the CPU seconds of fit and score intervals.
FIT = """
suppressMessages(library(segmented)); a <- commandArgs(TRUE); K <- as.integer(a[2]); d <- read.csv(a[1])
cpu <- function() sum(proc.time()[c("user.self", "sys.self")])
for (s in unique(d$set)) { e <- d[d$set == s, ]; began <- cpu(); took <- NA
  r <- tryCatch({ f <- segmented(lm(y ~ x, data = e), seg.Z = ~x, npsi = K)
    try(confint(f, method = "score"), silent = TRUE); took <- cpu() - began
    g <- confint(f, method = "gradient"); w <- slope(f)$x
    c(f$psi[, "Est."], g[, 2], g[, 3], w[, 4], w[, 5]) }, error = function(x) rep(NA, 5 * K + 2))
  cat("set", s, r, took, "\\n") }
"""
COUNT = """
suppressMessages(library(segmented)); a <- commandArgs(TRUE); d <- read.csv(a[1])
for (s in unique(d$set)) { e <- d[d$set == s, ]
  k <- tryCatch({ o <- lm(y ~ x, data = e)
    f <- suppressWarnings(selgmented(o, seg.Z = ~x, Kmax = 5, type = "bic", msg = FALSE))
    if (inherits(f, "segmented")) nrow(f$psi) else 0 }, error = function(x) NA)
  cat("set", s, k, "\\n") }
"""
TABLES = """
suppressMessages(library(segmented)); data(stagnant); data(plant); data(down)
show <- function(name, x, y, K, n = 0 * y + 1, family = "normal") { e <- data.frame(x = x, y = y, n = n)
  o <- if (family == "normal") lm(y ~ x, data = e) else
    eval(bquote(glm(y ~ x, family = .(as.name(family)), weights = n, data = e)))
  f <- segmented(o, seg.Z = ~x, npsi = K); options(digits = 9)
  cat("#", name, family, K, f$psi[, "Est."], f$psi[, "St.Err"], deviance(f), "\\n")
  options(digits = 7); for (i in seq_along(x)) cat(x[i], format(y[i], digits = 15), n[i], "\\n") }
set.seed(1); show("down", down$age, down$cases / down$births, 1, down$births, "binomial")
show("stagnant", stagnant$x, stagnant$y, 1)
for (g in levels(plant$group)) { p <- plant[plant$group == g, ]; show(paste0("plant-", g), p$time, p$y, 2) }
for (name in c("nhtemp", "Nile", "LakeHuron")) { v <- get(name); show(name, as.numeric(time(v)), as.numeric(v), 1) }
show("cars", cars$speed, cars$dist, 1); a <- na.omit(airquality[, c("Temp", "Ozone")])
show("airquality", a$Temp, a$Ozone, 1)
# 21 points of a question, the first example of piecewise-regression, US inflation by unemployment, and the temperature
# of the earth by years (NASA GISTEMP).
kinds <- c(question = 1, example = 1, inflation = 1, temperature = 3); folder <- commandArgs(TRUE)[1]
for (name in names(kinds)) {
  v <- read.csv(file.path(folder, paste0(name, ".csv"))); show(name, v[, 1], v[, 2], kinds[[name]]) }
"""


def ask_r(script: str, sets: list[Samples], *arguments: object) -> dict[int, np.ndarray] | None:
    """Return the numbers that R prints for every set; None where it cannot be asked."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.csv"
        with data.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["set", "x", "y"])
            writer.writerows([i, a, b] for i, (x, y) in enumerate(sets) for a, b in zip(x, y))
        text = run_r(script, data, *arguments)
    if text is None:
        return None
    # selgmented says things of its own.
    lines = (line.split()[1:] for line in text.splitlines() if line.startswith("set "))
    return {int(first): np.array([float(word.replace("NA", "nan")) for word in words]) for first, *words in lines}


def run_r(script: str, *arguments: object) -> str | None:
    """Return what a script of R prints; None where it cannot be run."""
    if shutil.which("Rscript") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.R"
        path.write_text(script)
        run = subprocess.run(["Rscript", path, *map(str, arguments)], capture_output=True, text=True, check=False)
    return None if run.returncode else run.stdout
