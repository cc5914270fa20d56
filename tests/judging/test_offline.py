"""The exact judge works where no HTTP library is installed."""

import subprocess
import sys


def test_the_offline_route_loads_no_http_library():
    code = (
        "import sys; sys.modules['httpx'] = None\n"
        "import paiq.judging.judge_verb, paiq.demo.pipeline\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_sending_without_the_library_says_what_to_install():
    code = (
        "import sys; sys.modules['httpx'] = None\n"
        "from paiq.errors import ConfigError\n"
        "from paiq.judging import judge, routes\n"
        "from paiq.judging.clock import Clock\n"
        "try: judge._client(routes.load('local-vllm'), None, Clock())\n"
        "except ConfigError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'paiq[judge]'" in done.stdout
