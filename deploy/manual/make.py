#!/usr/bin/env python3
"""make.py PROGRAM FOLDER: makes manual pages and completions from the program's --describe."""

import json
import os
import pathlib
import re
import subprocess
import sys

import completion

SUMMARY_OF_FILE = "parameters of Pacecar"


def ask(program, *arguments):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PACECAR_")}
    return json.loads(subprocess.run([program, *arguments], env=clean, text=True, check=True,
                                     capture_output=True).stdout)


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^(?=['.])", r"\\&", text)


def header(name, section, summary, version):
    title = f'.TH {name.upper()} {section} "" "Pacecar {version}"'
    return f"{title}\n.SH NAME\n{escape(name)} \\- {escape(summary)}\n"


def verbatim(text):
    return f".PP\n.nf\n{escape(text.strip(chr(10)))}\n.fi\n" if text.strip() else ""


def details(flag):
    accepts = f"one of {', '.join(flag['choices'])}" if flag["choices"] else flag["accepts"]
    notes = [accepts, f"default {flag['default']}" if flag["default"] else "",
             "may be given several times" if flag["several"] else ""]
    noted = "; ".join(note for note in notes if note)
    return flag["help"] + (f" ({noted})" if noted else "")


def flag_entry(flag):
    value = f" \\fI{escape(flag['value'])}\\fR" if flag["value"] else ""
    names = ", ".join(f"\\fB{escape(name)}\\fR" for name in flag["names"])
    return f".TP\n{names}{value}\n{escape(details(flag))}\n"


def see_also(pages):
    return ".SH SEE ALSO\n" + ", ".join(f"\\fB{escape(n)}\\fR({s})" for n, s in pages) + "\n"


def subcommand_page(described, version, pages):
    page = described["name"].replace(" ", "-")
    operands = " ".join(f"\\fR[\\fI{escape(o['names'][0])}\\fR]" for o in described["operands"])
    parts = [header(page, 1, described["summary"].rstrip(".?!"), version),
             f".SH SYNOPSIS\n\\fB{escape(described['name'])}\\fR [\\fIflags\\fR] {operands}\n",
             f".SH DESCRIPTION\n{escape(described['summary'])}\n", verbatim(described["footer"]),
             ".SH OPTIONS\n", *map(flag_entry, described["operands"] + described["flags"]),
             see_also(p for p in pages if p[0] != page)]
    return "".join(parts)


def main_page(top, pages):
    summary = top["summary"][0].upper() + top["summary"][1:]
    subcommands = "".join(f".TP\n\\fB{escape(s['name'])}\\fR\n{escape(s['summary'])}\n"
                          for s in top["subcommands"])
    return (header("pacecar", 1, top["summary"], top["version"]) +
            ".SH SYNOPSIS\n\\fBpacecar\\fR \\fIsubcommand\\fR [\\fIflags\\fR]\n"
            f".SH DESCRIPTION\n{escape(summary)}.\n" + subcommands +
            verbatim(top["footer"]) + see_also(pages[1:]))


def parameter_page(parameters, version, pages):
    entries = "".join(
        f".TP\n\\fB{escape(p['name'])}\\fR\n{escape(p['doc'])} "
        f"({escape(p['accepts'])}; default '{escape(p['default'])}')\n" for p in parameters)
    return (header("pacecar.conf", 5, SUMMARY_OF_FILE, version) +
            ".SH DESCRIPTION\nA file of lines NAME=VALUE. A name may also be set in the "
            "environment, which overrides files.\n.SH PARAMETERS\n"
            + entries + see_also(pages[:-1]))


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    top = ask(program, "--describe")
    subcommands = [ask(program, s["name"], "--describe") for s in top["subcommands"]]
    pages = [("pacecar", 1), *((s["name"].replace(" ", "-"), 1) for s in subcommands),
             ("pacecar.conf", 5)]
    files = {"man1/pacecar.1": main_page(top, pages)}
    for described in subcommands:
        page = described["name"].replace(" ", "-")
        files[f"man1/{page}.1"] = subcommand_page(described, top["version"], pages)
    parameters = ask(program, "info", "-c", "--json")["parameters"]
    files["man5/pacecar.conf.5"] = parameter_page(parameters, top["version"], pages)
    files["bash/pacecar"] = completion.bash(top, subcommands)
    files["zsh/_pacecar"] = completion.zsh(top, subcommands)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
