"""Which unit is on in which row, where the rows or columns that show it are rare.

One mechanism for all cases: a state is a network and the rows it explains to rounding (`state`), and a change to its
gates is kept if it explains more (`explain`, `agreement`). The cases are first choices of the explained rows: those at
the usual values of rare columns (`columns`), of a level (`levels`), away from units of few rows (`few_rows`).
"""
