"""Makes the shells' completions from the program's description of itself."""

BASH = """\
# Completion of pacecar for bash, generated from its table of flags.
_pacecar() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} flags=""
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "{subcommands} --help --version" -- "$word")
    return
  fi
  case "${{COMP_WORDS[1]}} $before" in
{choices}
  esac
  case ${{COMP_WORDS[1]}} in
{flags}
  esac
  [[ $word != -* ]] || mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
}}
complete -o default -F _pacecar pacecar
"""

ZSH = """\
#compdef pacecar
# Completion of pacecar for zsh, generated from its table of flags.
if ((CURRENT == 2)); then
  local -a subcommands=(
{subcommands}
  )
  _describe subcommand subcommands
  return
fi
local subcommand=$words[2]
shift words
((CURRENT--))
case $subcommand in
{flags}
esac
"""


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


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def zsh_flag(flag):
    help_text = flag["help"].replace("[", "(").replace("]", ")").replace(":", "\\:")
    values = ""
    if flag["value"]:
        action = f"({' '.join(flag['choices'])})" if flag["choices"] else "_files"
        values = f":{flag['value']}:{action}"
    several = "*" if flag["several"] else f"({' '.join(flag['names'])})"
    return " ".join(quoted(f"{several}{name}[{help_text}]{values}") for name in flag["names"])


def zsh(top, subcommands):
    names = "\n".join("    " + quoted(f"{s['name']}:{s['summary']}") for s in top["subcommands"])
    cases = []
    for described in subcommands:
        lines = " \\\n      ".join([*map(zsh_flag, described["flags"]), "'*:file:_files'"])
        cases.append(f"  {short_name(described)})\n    _arguments -s \\\n      {lines}\n    ;;")
    return ZSH.format(subcommands=names, flags="\n".join(cases))
