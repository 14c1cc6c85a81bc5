"""The benchmarks measure what they say, at sizes that a test can afford."""

from benchmarks.resources.passes import hermite_rate, pass_memory


def test_the_rate_counts_the_features_of_the_pass() -> None:
    rate = hermite_rate(r=4, degree=3, n=5_000, gemm_size=300, rounds=1)
    assert rate.n_features == 35
    assert rate.hermite_flops > 0
    assert rate.share == rate.hermite_flops / rate.gemm_flops


def test_a_pass_over_a_file_does_not_keep_the_file_in_memory() -> None:
    memory = pass_memory(rows=4_000_000, d=8)
    assert memory.file_bytes > 127e6
    # Blocks of 32 MiB, with their conversions, and one that is read ahead; the file itself would be 128 MB more.
    assert memory.hermite_peak - memory.imported_peak < 110e6
