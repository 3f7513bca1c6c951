#!/usr/bin/env python3
"""make.py PROGRAM FOLDER OTHER...: makes manual pages and completions from a program's --describe,
and manual pages of others from their --help."""

import json
import os
import pathlib
import re
import subprocess
import sys

SUMMARY_OF_FILE = "parameters of Pacecar"
BASH = """\
# Completion of pacecar for bash, generated from its table of flags.
_pacecar() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} flags=""
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "{subcommands} help --help --version" -- "$word")
    return
  fi
  case "${{COMP_WORDS[1]}} $before" in
{choices}
  esac
  case ${{COMP_WORDS[1]}} in
{flags}
  esac
  flags+=" --help --help-all --quiet"
  [[ $word != -* ]] || mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
}}
complete -o default -F _pacecar pacecar
"""


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


def help_page(program, version, pages):
    """(the name of the program, its page)."""
    text = subprocess.run([program, "--help"], text=True, check=True, capture_output=True,
                          env={**os.environ, "COLUMNS": "80"}).stdout
    name = re.search(r"(?im)^usage: (\S+)", text)[1]
    about = next(part for part in text.split("\n\n") if not part.startswith("usage"))
    summary = about.partition(".")[0].replace("\n", " ")
    return name, (header(name, 1, summary, version) + ".SH DESCRIPTION\n" + verbatim(text) +
                  see_also(pages[:1]))


def short_name(described):
    return described["name"].split(" ", 1)[1]


def bash(top, subcommands):
    choices = []
    for described in subcommands:
        for flag in described["flags"]:
            if flag["choices"]:
                patterns = " | ".join(f'"{short_name(described)} {n}"' for n in flag["names"])
                choices.append(f"    {patterns})\n      mapfile -t COMPREPLY < <(compgen -W "
                               f"\"{' '.join(flag['choices'])}\" -- \"$word\")\n"
                               "      return\n      ;;")
    flags = [f"    {short_name(s)}) flags=\"{' '.join(n for f in s['flags'] for n in f['names'])}\""
             " ;;" for s in subcommands]
    return BASH.format(subcommands=" ".join(s["name"] for s in top["subcommands"]),
                       choices="\n".join(choices), flags="\n".join(flags))


def main():
    program, folder, *others = sys.argv[1:]
    folder = pathlib.Path(folder)
    top = ask(program, "--describe")
    subcommands = [ask(program, s["name"], "--describe") for s in top["subcommands"]]
    pages = [("pacecar", 1), *((s["name"].replace(" ", "-"), 1) for s in subcommands),
             ("pacecar.conf", 5)]
    files = {"man1/pacecar.1": main_page(top, pages)}
    for described in subcommands:
        page = described["name"].replace(" ", "-")
        files[f"man1/{page}.1"] = subcommand_page(described, top["version"], pages)
    for other in others:
        name, page = help_page(other, top["version"], pages)
        files[f"man1/{name}.1"] = page
    parameters = ask(program, "info", "-c", "--json")["parameters"]
    files["man5/pacecar.conf.5"] = parameter_page(parameters, top["version"], pages)
    files["bash/pacecar"] = bash(top, subcommands)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
