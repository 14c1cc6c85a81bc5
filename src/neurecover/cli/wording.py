"""Translate sentences of the library for the command line: options in place of arguments."""

import re

_WORDS = (
    (
        r"neurecover\.recover\(oracle, n_samples=(\d+), activation='(\w+)'\)",
        r"neurecover extract … --samples \1 --activation \2",
    ),
    (r"neurecover\.recover\(oracle, n_samples=(\d+)\)", r"neurecover extract … --samples \1"),
    (r"recover\(oracle, n_samples=\.\.\.\)", "--samples N"),
    (r"neurecover\.oracle\(model, output='logit'\)|output='logit'", "--logits"),
    (r"bounds=\(low, high\)", "--bounds LOW,HIGH"),
    (r"like=X", "--like FILE"),
    (r"\bkeep=", "--keep"),
    (r"\bmax_queries\b", "--budget"),
    (r"or turn text into columns of 0 and 1", "or turn text into numbers with --one-hot"),
    (r"inputs=\[[^]]*\]", "--inputs"),
    (r"outputs='([^']*)'", r"--outputs \1"),
    (r"^(bounds|method|loss|kind|upper) (needs|must)\b", r"--\1 \2"),
    (r"Leave out inputs, outputs and drop", "Leave out --inputs, --outputs and --drop"),
    (r"use recover_lowest_layer or estimate", "use neurecover lowest-layer or neurecover estimate"),
    (r"use recover instead", "use neurecover recover instead"),
    (r"\bmax_degree\b", "--max-degree"),
    (r"\bn_upper\b", "--upper-hidden"),
    (r"upper='(\w+)'", r"--upper \1"),
    (r", or give response, a function of the decoded JSON", ""),
    (r"\bform='([\w,]+)'", r"--form \1"),
    (r"Give them as headers, from the environment", "Give them with --header, from the environment"),
    (r"Input should be a valid integer, unable to parse string as an integer", "expected a whole number"),
    (r"Input should be a valid number, unable to parse string as a number", "expected a number"),
    (r"^inputs and drop\b", "--inputs and --drop"),
    (r"drop=\[(\d+)\]", r"--drop \1"),
    (r"drop=\[…\]", "--drop"),
    (r"the intersection in place of the union", "--intersection"),
    (r"n_hidden=None", "leave out --hidden"),
    (r"\bn_hidden=\(?([\d, ]+)\)?", r"--hidden \1"),
    (r": n_hidden\b", ": --hidden"),
    (r"Give n_inputs\b", "Give --inputs"),
    (r"\bdepth=(\d+)", r"--depth \1"),
    (r"\baffine=True", "--affine yes"),
    (r"\baffine='auto'", "--affine auto"),
    (r"open the samples with missing='drop'", "give --dropna"),
    (r"\bmissing='drop'", "--dropna"),
    (r"\bloss='(\w+)'", r"--loss \1"),
    (r"\bn_hidden\b", "--hidden"),
    (r"\bactivation='([^']+)'", r"--activation \1"),
    (r"\btime_budget\b", "--time-budget"),
    (r"\bquery_budget\b", "--budget"),
    (r"\brandom_state\b", "--seed"),
    (r"neurecover\.HalfspaceUnion", "`neurecover halfspaces`"),
    (r"neurecover\.HingeRegression", "`neurecover segmented`"),
)


def as_options(sentence: str) -> str:
    """Return the sentence with command-line options in place of Python arguments."""
    for pattern, words in _WORDS:
        sentence = re.sub(pattern, words, sentence)
    return sentence
