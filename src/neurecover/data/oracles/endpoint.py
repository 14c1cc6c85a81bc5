"""A model behind HTTP: rows of inputs are posted as JSON, rows of outputs come back as JSON.

Inputs are written with all digits of double precision; outputs have the digits that the endpoint sends.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from neurecover.data.oracles.calls import OPTIONS, BusyError
from neurecover.data.oracles.oracle import Oracle
from neurecover.exceptions import RefusedError
from neurecover.models.formats.libraries import optional
from neurecover.random import RandomStateLike
from neurecover.solve import afford, limit

Request = Callable[[np.ndarray], Any]
Response = Callable[[Any], ArrayLike]

# Common JSON forms, by the field of the request: that field, and the field of its response.
FORMS = {"inputs": ("inputs", "outputs"), "instances": ("instances", "predictions")}
NAME_FIELDS = "Name the fields of request and answer, as in form='inputs,outputs'"
_SHOWN = 120  # characters of an answer that an error shows
_NOT_UNDERSTOOD = {400, 422}  # statuses for a body of another form
_BUSY = {408, 425, 429, 500, 502, 503, 504}  # statuses that may pass


class Endpoint:
    """`model(X)` posts one request for the rows X (n, d) and returns the answers (n, p)."""

    def __init__(
        self,
        url: str,
        *,
        form: str = "inputs",
        one_row: bool = False,
        request: Request | None = None,
        response: Response | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        in_flight: int = 1,
    ) -> None:
        self._httpx = optional("httpx", "A model behind a URL", "http")
        if not re.match(r"https?://[^/]", url):
            raise ValueError(f"A URL begins with http:// or https:// and names a host. Got {url!r} instead.")
        asked, *answered = (field.strip() for field in ",".join(FORMS.get(form, (form,))).split(","))
        if len(answered) != 1 or not asked or not answered[0]:
            raise ValueError(f"form is one of {', '.join(FORMS)}, or two names: 'inputs,outputs'. Got {form!r}.")
        if not timeout > 0.0:
            raise ValueError(f"timeout needs a number of seconds above 0. Got {timeout!r} instead.")
        self.url, self._timeout = url, timeout
        self._request = request or (lambda X: {asked: X[0].tolist() if one_row else X.tolist()})
        self._response = response or (lambda answer: _rows(answer, answered[0], one_row))
        self._client = self._httpx.Client(
            headers={"User-Agent": user_agent()} | _expand(headers or {}),
            limits=self._httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight),
        )

    def __call__(self, X: np.ndarray) -> np.ndarray:
        seconds = min(self._timeout, max(limit().seconds_left, OPTIONS.least))
        try:
            answer = self._client.post(self.url, json=self._request(X), timeout=seconds)
        except self._httpx.TimeoutException:
            if seconds < self._timeout:
                afford()
            raise TimeoutError(f"{self.url} did not answer {len(X)} rows within {seconds:g} s.") from None
        except self._httpx.TransportError as error:
            raise ConnectionError(f"{self.url} cannot be reached: {str(error).rstrip('.') or 'no answer'}.") from None
        self._check(answer)
        try:
            decoded = answer.json()
        except ValueError:
            raise RefusedError(f"{self.url}: expected JSON. Got {answer.text[:_SHOWN]!r} instead.") from None
        try:
            return np.asarray(self._response(decoded), dtype=np.float64)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise RefusedError(
                f"{self.url}: the outputs are not where they were expected ({_brief(error)}). {NAME_FIELDS}, or "
                f"give response, a function of the decoded JSON. Got {answer.text[:_SHOWN]!r}."
            ) from None

    def _check(self, answer: Any) -> None:
        """Raise the error that an HTTP status other than success stands for."""
        status, what = answer.status_code, f"{self.url} answered with status {answer.status_code}"
        if status in _BUSY:
            raise BusyError(f"{what}.", _retry_after(answer.headers.get("Retry-After")), limits=status == 429)
        if 300 <= status < 400:
            raise RefusedError(f"{what}, to be asked at {answer.headers.get('Location')!r}. Give that URL.")
        if status in (401, 403):
            raise RefusedError(f"{what}: it wants other credentials. Give them as headers, from the environment.")
        if not 200 <= status < 300:
            hint = f". {NAME_FIELDS}." if status in _NOT_UNDERSTOOD else ""
            raise ValueError(f"{what}: {answer.text[:_SHOWN]!r}{hint}")


def endpoint(
    url: str,
    n_inputs: int | None = None,
    *,
    form: str = "inputs",
    one_row: bool = False,
    request: Request | None = None,
    response: Response | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    retries: int = 5,
    batch: int = 100,
    in_flight: int = 4,
    queries_per_second: float | None = None,
    max_queries: int | None = None,
    max_seconds: float | None = None,
    keep: str | Path | None = None,
    output: str | None = None,
    like: Any = None,
    bounds: tuple[Any, Any] | None = None,
    n_samples: int | None = None,
    random_state: RandomStateLike = None,
) -> Oracle:
    """Return the oracle of a model behind a URL, for a model that is yours or that you may test.

    Parameters
    ----------
    url : str
        Where requests are posted.
    n_inputs : int or None, default=None
        The number of inputs; None takes it from like.
    form : str, default="inputs"
        The fields of request and answer: "features,prediction" posts {"features": rows} and reads {"prediction":
        rows}. "inputs" is short for "inputs,outputs", and "instances" for "instances,predictions".
    one_row : bool, default=False
        Whether a call takes a single row: {"features": row}, answered by one number or one row. `batch` is then 1.
    request, response : callable or None, default=None
        Functions in place of `form`: `request` turns rows (n, d) into the object posted as JSON, `response` turns the
        decoded answer into rows (n,) or (n, p).
    headers : mapping of str to str or None, default=None
        Names and values; ${NAME} in a value is taken from the environment.
    timeout : float, default=30.0
        Seconds that a call may take.
    retries : int, default=5
        How often a failed call is repeated, after 0.5, 1, 2, … s, or after the time that Retry-After gives.
    batch : int, default=100
        Rows per call.
    in_flight : int, default=4
        The number of calls at the same time.
    queries_per_second : float or None, default=None
        The largest number of rows asked per second.
    max_queries, max_seconds : int, float or None, default=None
        The largest number of queries, and the largest time of a run.
    keep : path or None, default=None
        A file that saves every answer as it comes: no query is made twice, in this run or a later one.
    output, like, bounds, n_samples, random_state
        As in `neurecover.oracle`.

    Returns
    -------
    Oracle
        For `extract`, or for `recover` with n_samples.

    Examples
    --------
    >>> import neurecover as nr
    >>> oracle = nr.endpoint("http://localhost:8000/predict", n_inputs=10, keep="answers.bin")  # doctest: +SKIP
    >>> r = nr.extract(oracle, query_budget=20_000, random_state=0)  # doctest: +SKIP
    """
    model = Endpoint(
        url,
        form=form,
        one_row=one_row,
        request=request,
        response=response,
        headers=headers,
        timeout=timeout,
        in_flight=in_flight,
    )
    return Oracle(
        model,
        n_inputs,
        output=output,
        like=like,
        bounds=bounds,
        n_samples=n_samples,
        batch=1 if one_row else batch,
        keep=keep,
        retries=retries,
        in_flight=in_flight,
        queries_per_second=queries_per_second,
        max_queries=max_queries,
        max_seconds=max_seconds,
        random_state=random_state,
    )


def user_agent() -> str:
    """Return the name that requests carry."""
    try:
        release = version("neurecover")
    except PackageNotFoundError:  # not installed: run from the source tree
        release = "0"
    return f"neurecover/{release} (queries a model for its weights)"


def _rows(answer: Any, name: str, one_row: bool) -> ArrayLike:
    """Return the outputs in an answer: its field `name`, or the answer itself if it has no fields."""
    if one_row:
        return np.reshape(answer[name] if isinstance(answer, dict) else answer, (1, -1))
    if isinstance(answer, list):
        return answer
    if not isinstance(answer, dict) or name not in answer:
        fields = f"the fields {', '.join(answer)}" if isinstance(answer, dict) else type(answer).__name__
        raise ValueError(f"no field {name!r} but {fields}")
    return answer[name]


def _expand(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with ${NAME} replaced from the environment."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise ValueError(f"A header needs ${{{found[1]}}} from the environment. It is not set.")
        return os.environ[found[1]]

    return {name: re.sub(r"\$\{(\w+)\}", value, text) for name, text in headers.items()}


def _retry_after(text: str | None) -> float:
    """Return the seconds of a Retry-After header, which is a number or a date; 0 if it is neither."""
    try:
        seconds = float(text or 0.0)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text or "").timestamp() - time.time()
        except ValueError:
            return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def _brief(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)
