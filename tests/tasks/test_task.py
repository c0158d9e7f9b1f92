import numpy as np

from hydractl.tasks.task import AnswerArray, as_answer


def test_answers_are_arrays_that_give_plain_ones() -> None:
    plain = np.arange(6.0).reshape(2, 3)
    answers = as_answer(plain)
    for part in (answers, answers[0], answers[:, 1:]):
        assert type(part) is AnswerArray and type(part.numpy()) is np.ndarray
    assert np.shares_memory(answers.numpy(), plain)
    assert type(answers + 1) is np.ndarray and type(answers.sum()) is np.float64
    np.testing.assert_array_equal(answers[1].numpy(), plain[1])
    assert as_answer(None) is None and as_answer([1]) == [1]
