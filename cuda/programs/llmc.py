"""llm.c's dev/cuda: each kernel of each file, against the results that the file itself computes on the processor.
Batches, sequences and channels are made smaller, and each kernel runs once with one size of block."""

import re

from program import Program

# What a file's `main` sets, and what it becomes. Some kernels are for multiples of 256 tokens and channels, as GPT-2
# has them.
SIZES = {"B": 2, "T": 256, "C": 256, "NH": 4, "L": 1, "V": 1003, "num_parameters": 4096, "repeat_times": 1}
SMALLER = [
    (r"\b((?:int|int64_t|const long) (%s) = )\d+;" % "|".join(SIZES), lambda found: f"{found[1]}{SIZES[found[2]]};"),
    (r"\bint OC = 768 \*", "int OC = 256 *"),
    (r"\bint block_sizes\[\] = \{[^}]*\}", "int block_sizes[] = {128}"),
    (r"\bint sqrt_block_sizes\[\] = \{[^}]*\}", "int sqrt_block_sizes[] = {16}"),
]
NEEDED = {"nccl": "NCCL", "mpi": "MPI"}


def programs(root, options):
    return [
        program
        for source in sorted((root / "dev/cuda").glob("*.cu"))
        if not source.name.startswith("small-")
        for program in kernels(source, options)
    ]


def numbers(text):
    """The kernels that a file's `main` can be asked for; those of cuDNN are left out."""
    text = re.sub(r"#ifdef ENABLE_CUDNN.*?#endif", "", text, flags=re.S)
    choice = re.search(r"switch \(kernel_num\) \{(.*?)default:", text, re.S)
    return [int(number) for number in re.findall(r"case (\d+):", choice[1])] if choice else [None]


def kernels(source, options):
    text = source.read_text()
    needs = [what for word, what in NEEDED.items() if f"<{word}.h>" in text]
    small = f"small-{source.name}"
    libraries = ["-lcublas", "-lcublasLt", "-Xcompiler=-fopenmp", "-lgomp"]
    machine = ["-O3", "--use_fast_math", "-lineinfo", "-std=c++17", *options.machine.code]
    builds = [[*machine, small, "-o", source.stem, *options.libraries, *libraries]]
    for number in numbers(text):
        arguments = [] if number is None else [str(number)]
        yield Program(
            " ".join([source.stem, *arguments]),
            source.parent,
            source.stem,
            builds,
            arguments,
            copies={small: (source.name, SMALLER)},
            needs=needs,
        )
