"""Threads of the step loops."""

import multiprocessing
import threading
import time

import pytest
import torch

from fb_fairseq.ops import threads as module
from fb_fairseq.ops.thread_pool import each, each_range
from fb_fairseq.ops.threads import LARGE_OUTSIDE_PRODUCT, LARGE_PRODUCT, keep_threads_for_loops, loop_threads

CPU = torch.device("cpu")


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 7, 70, 1000])
def test_ranges_cover_all_and_do_not_overlap(count, threads):
    seen = []
    each_range(lambda first, last: seen.extend(range(first, last)), count, threads)
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize("threads", [1, 3])
def test_tasks(threads):
    done = []
    each([lambda i=i: done.append((i, torch.is_grad_enabled())) for i in range(7)], threads)
    assert sorted(done) == [(i, True) for i in range(7)]
    with torch.no_grad():
        each([lambda i=i: done.append((i, torch.is_grad_enabled())) for i in range(7)], threads)
    assert sorted(done[7:]) == [(i, False) for i in range(7)]


def test_tasks_run_on_several_threads():
    meeting = threading.Barrier(3, timeout=20)
    each([meeting.wait] * 3, 3)


def test_inference_mode_holds_on_all_threads():
    """There tensors of inference mode may be written to."""
    meeting = threading.Barrier(3, timeout=20)
    with torch.inference_mode():
        x = torch.zeros(3)
        each([lambda: meeting.wait() >= 0 and x.add_(1)] * 3, 3)
    assert x.tolist() == [3] * 3


@pytest.mark.parametrize("here", [True, False])
def test_all_threads_end_before_an_exception_is_raised(here):
    """They write to memory that may be gone, or another's, afterwards."""
    meeting, done = threading.Barrier(3, timeout=20), []

    def task():
        meeting.wait()
        if (threading.current_thread() is threading.main_thread()) == here:
            raise ZeroDivisionError
        time.sleep(0.2)
        done.append(1)

    with pytest.raises(ZeroDivisionError):
        each([task] * 3, 3)
    assert len(done) == 1 + here


def test_small_products_run_on_one_thread(torch_threads):
    torch.set_num_threads(3)
    with loop_threads(CPU, LARGE_PRODUCT - 1) as threads:
        assert (threads, torch.get_num_threads()) == (3, 1)
        with loop_threads(CPU, 1) as inner:
            assert (inner, torch.get_num_threads()) == (3, 1)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with loop_threads(CPU, LARGE_PRODUCT) as threads:
        assert (threads, torch.get_num_threads()) == (3, 3)
    with pytest.raises(ZeroDivisionError), loop_threads(CPU, 1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3


def test_small_models_leave_the_threads_to_the_loop(torch_threads, monkeypatch, caplog):
    monkeypatch.setattr(module, "_kept", 1)
    caplog.set_level("INFO")
    torch.set_num_threads(3)
    keep_threads_for_loops(LARGE_OUTSIDE_PRODUCT)
    assert torch.get_num_threads() == 3 and not caplog.messages
    keep_threads_for_loops(LARGE_OUTSIDE_PRODUCT - 1)
    assert torch.get_num_threads() == 1 and "torch uses 1 thread, and the C++ loop 3" in caplog.text
    with loop_threads(CPU, 1) as threads:
        assert (threads, torch.get_num_threads()) == (3, 1)


def test_a_forked_process_has_threads_of_its_own():
    each([lambda: None] * 3, 3)
    process = multiprocessing.get_context("fork").Process(target=test_tasks_run_on_several_threads)
    process.start()
    process.join(30)
    assert process.exitcode == 0
