"""Runs tests of tinygrad, one after the other, and writes what comes of each as it goes.

    tinygrad_worker.py TINYGRAD RESULTS SECONDS < NAMES

NAMES are a line each; with none all are only listed. The program ends with the first test that fails, because that may
leave a device unusable, and is ended by SIGALRM in a test that takes longer than SECONDS.
"""

import json
import os
import signal
import sys
import unittest

# As tinygrad's own: on a device, and in front of other modules that are called `test`.
sys.path.insert(0, sys.argv[1])
FILES = ["test.backend.test_ops", "test.backend.test_tensor"]


class Outcome(unittest.TestResult):
    """What came of one test: a word, and why."""

    def __init__(self):
        super().__init__()
        self.outcome, self.reason = "passed", ""

    def set(self, outcome, reason):
        # Of parts of a test the first that fails counts.
        if self.outcome != "failed":
            self.outcome, self.reason = outcome, " ".join(str(reason).replace("\0", "").split())

    def addSkip(self, test, reason):
        self.set("skipped", reason)

    def addError(self, test, error):
        self.set("failed", f"{error[0].__name__}: {error[1]}")

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error:
            self.addError(subtest, error)

    def addUnexpectedSuccess(self, test):
        self.set("failed", "succeeds, which is not expected")


def each(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from each(item)
        else:
            yield item


def main():
    wanted, seconds = sys.stdin.read().split(), int(sys.argv[3])
    # Tests draw the same numbers each time.
    import hypothesis
    hypothesis.settings.register_profile("same", derandomize=True, database=None, deadline=None)
    hypothesis.settings.load_profile("same")
    tests = {test.id(): test for test in each(unittest.defaultTestLoader.loadTestsFromNames(FILES))}
    with open(sys.argv[2], "a", buffering=1) as results:
        for name in wanted or tests:
            result = Outcome()
            print(json.dumps([name]), file=results)
            if wanted:
                signal.alarm(seconds)
                tests[name].run(result)
                signal.alarm(0)
                print(json.dumps([name, result.outcome, result.reason]), file=results)
            if result.outcome == "failed":
                break
    # A device that failed would be waited for, for each buffer once more.
    os._exit(0)


if __name__ == "__main__":
    main()
