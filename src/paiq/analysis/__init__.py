"""From records to numbers: means, intervals, comparisons, analytical compute, diagnostics.

Modules are imported by name (`paiq.analysis.statistics`), so that nothing heavy loads early.
"""
