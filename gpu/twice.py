"""What twice.c offers, for a program of this folder that launches by itself. The program's steps go on while kinds are switched."""

import ctypes
import json

import torch


def numbers(words):
    return (ctypes.c_uint32 * len(words))(*map(int, words))


class Twice:
    """`switch TURNS {"kinds": [...], "runtime": [...], "driver": [...], "restores": 0}` and `look STEPS KIND ...`, as a Control's other commands."""

    def __init__(self, library, cupti):
        self.library = ctypes.CDLL(library)
        status = self.library.open_cupti(cupti.encode())
        if status != 0:
            raise RuntimeError(f"{cupti}: {status}")

    def commands(self):
        return {"switch": self.switch, "look": self.look}

    def switch(self, words, step):
        plan, steps = json.loads("".join(words[1:])), 0
        lists = [numbers(plan[name]) for name in ("kinds", "runtime", "driver")]
        status = self.library.begin(*(part for one in lists for part in (one, len(one))), int(words[0]), plan["restores"])
        while status == 0 and not self.library.done():
            step()
            steps += 1
        return {"status": status, "steps": steps}

    def look(self, words, step):
        kinds, text = numbers(words[1:]), ctypes.create_string_buffer(1 << 14)
        torch.cuda.synchronize()
        status = self.library.look_begins(kinds, len(kinds))
        for _ in range(int(words[0])):
            step()
        torch.cuda.synchronize()
        twice = self.library.look_ends(kinds, len(kinds), text, len(text))
        return {"status": status, "twice": twice, "text": text.value.decode()}
