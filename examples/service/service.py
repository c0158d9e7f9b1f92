"""Answers images or texts over HTTP by a calibrated file, with one process per core.

python service.py service.safetensors [PORT [PROCESSES]]

Each process watches its inputs and keeps its state in the folder that STATES names; a restart continues from it.
An ONNX file is served without torch.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import wait
from pathlib import Path

from aiohttp import web
from PIL import Image

import hydractl
from hydractl.errors import HydractlError

LARGEST = 10 * 2**20  # bytes of a request
STATES = Path(os.environ.get("STATES", "states"))
SECONDS = float(os.environ.get("SAVE_SECONDS", "60"))  # from one writing of the state to the next
Image.MAX_IMAGE_PIXELS = 25_000_000  # Pillow refuses twice as many


class Service:
    """A model, and the thread that runs it: a process has one core, and one pass at a time."""

    def __init__(self, file, number):
        self.model, self.thread = load(file), ThreadPoolExecutor(1)
        self.texts = self.model.spec.modality == "text"
        self.blank = "ready?" if self.texts else Image.new("RGB", (32, 32))
        self.model.predict(self.blank)  # the first pass is slow
        self.file, self.state = file, STATES / f"{number}.json"
        self.monitor = hydractl.Monitor(file, state=self.state if self.state.exists() else None)
        self.saved, self.alarmed = time.monotonic(), self.monitor.alarmed

    def answer(self, body):
        found = self.model.predict(body.decode() if self.texts else body)
        if self.monitor.update(found) and not self.alarmed:
            self.alarmed = True
            logging.warning("ALARM: inputs have changed: hydractl monitor MODEL --merge %s", STATES / "*.json")
        if time.monotonic() > self.saved + SECONDS:
            self.save()
        row = found.row(0)
        return {
            **({"label": row["label"], "confidence": row["msp"]} if "label" in row else row),
            "typicality": None if found.typicality is None else found.typicality.item(),
            "ood": None if found.ood is None else found.ood.item(),
        }

    def save(self):
        self.monitor.save(self.state)
        self.saved = time.monotonic()

    def metrics(self):
        """The metrics of all processes: of this one as it is, of the others as they were last written."""
        self.save()
        every = hydractl.Monitor(self.file)
        every.merge(sorted(STATES.glob("*.json")))
        return every.metrics()

    async def scrape(self, request):
        text = await asyncio.get_running_loop().run_in_executor(self.thread, self.metrics)
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def close(self, app):
        await asyncio.get_running_loop().run_in_executor(self.thread, self.save)

    async def predict(self, request):
        try:
            body = await request.read()  # aiohttp answers 413 to more than LARGEST bytes
        except (ConnectionError, web.RequestPayloadError):
            return problem("the body broke off")
        if not body.strip():
            return problem("the body is empty: send an image or a text")
        try:
            found = await asyncio.get_running_loop().run_in_executor(self.thread, self.answer, body)
        except (HydractlError, ValueError) as error:
            logging.info("refused %d bytes: %s", len(body), error)
            return problem(f"the body is no {'text in UTF-8' if self.texts else 'image'} that can be read")
        return web.json_response(found)

    async def ready(self, request):
        await asyncio.get_running_loop().run_in_executor(self.thread, self.model.predict, self.blank)
        return web.json_response({"ready": True})


def load(file):
    if file.endswith(".onnx"):
        from hydractl.serve import load_onnx

        return load_onnx(file)
    import torch

    torch.set_num_threads(1)
    return hydractl.load(file).optimize_for_inference()


def problem(text):
    return web.json_response({"error": text}, status=400)


async def health(request):
    return web.json_response({"alive": True})


def serve(file, bound, number):
    """Loads the model, then listens until SIGTERM; requests that began are answered first."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    service, app = Service(file, number), web.Application(client_max_size=LARGEST)
    logging.info("ready")
    app.add_routes([web.post("/predict", service.predict), web.get("/metrics", service.scrape)])
    app.add_routes([web.get("/health", health), web.get("/ready", service.ready)])
    app.on_cleanup.append(service.close)
    web.run_app(app, sock=bound, shutdown_timeout=20, access_log_format='%a "%r" %s %b bytes %Tf s', print=None)


def main(file, port="8000", processes=None):
    spawning = multiprocessing.get_context("spawn")
    bound = socket.socket()  # connections are refused until the first process listens
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("", int(port)))
    count = int(processes or len(os.sched_getaffinity(0)))
    STATES.mkdir(exist_ok=True)
    workers = [spawning.Process(target=serve, args=(file, bound, number)) for number in range(count)]

    told = []

    def stop(*signals):
        told.extend(signals)
        for worker in workers:
            if worker.is_alive():
                worker.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    for worker in workers:
        worker.start()
    bound.close()
    wait([worker.sentinel for worker in workers])
    stop()  # whoever restarts the service starts all of it
    for worker in workers:
        worker.join()
    sys.exit(0 if told else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
