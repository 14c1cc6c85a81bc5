"""Figures and the HTML report, drawn from saved results alone."""

from neurecover.report.figures import overview
from neurecover.report.layers import weights_frame
from neurecover.report.notebook import in_notebook
from neurecover.report.page import write_report

__all__ = ["in_notebook", "overview", "weights_frame", "write_report"]
