"""What a service of the fleet does with its package: jobs.py NAME SIZE [WORDS...].

Each function is a job of a real kind: documents are parsed, rendered and packed. SIZE is about 2,000. The package comes
from PYTHONPATH, so the same job runs with every release of it.
"""
import io
import os
import random
import sys

size = int(sys.argv[2])
chance = random.Random(size)


def documents(count):
    return [{"id": i, "name": f"item {i}", "tags": ["a", "b", str(i % 7)], "price": i * 0.25, "text": "x" * chance.randrange(20, 200)} for i in range(count)]


def html(rows):
    body = "".join(f"<tr class='r{i % 3}'><td>{i}</td><td><a href='/{i}'>item <b>{i}</b></a></td></tr>" for i in range(rows))
    return f"<html><head><title>t</title></head><body><table>{body}</table></body></html>"


def apsw():
    import apsw

    connection = apsw.Connection(":memory:")
    cursor = connection.cursor()
    cursor.execute("create table item(id integer primary key, name, price)")
    cursor.executemany("insert into item values(?,?,?)", ((i, f"item {i}", i % 100) for i in range(size * 2)))
    cursor.execute("create index by_price on item(price, name)")
    return len(list(cursor.execute("select price, count(*), group_concat(name) from item group by price")))


def brotli():
    import brotli

    text = repr(documents(size // 4)).encode()
    return len(brotli.decompress(brotli.compress(text, quality=5)))


def docutils():
    from docutils.core import publish_string
    from docutils.writers.html4css1 import Writer

    text = "Title\n=====\n\n" + "".join(f"Part {i}\n--------\n\nSome *text* with ``code``.\n\n- one\n- two {i}\n\n" for i in range(size // 100))
    return len(publish_string(text, writer=Writer()))


def jinja2():
    from jinja2 import Environment

    page = Environment(autoescape=True).from_string("<ul>{% for d in all %}<li class='{{ d.tags|join(' ') }}'>{{ d.name|title }}: {{ d.text }}</li>{% endfor %}</ul>")
    return len(page.render(all=documents(size // 2)))


def jq():
    import jq

    program = jq.compile("map(select(.id % 3 == 0) | {name, total: (.price * 2)}) | sort_by(.name) | length")
    return program.input(documents(size // 2)).first()


def lxml():
    from lxml import etree, html as pages

    tree = pages.fromstring(html(size // 2))
    root = etree.Element("links")
    for link in tree.xpath("//a"):
        etree.SubElement(root, "link", href=link.get("href")).text = link.text_content()
    return len(etree.tostring(root, pretty_print=True))


def markdown():
    import markdown

    return len(markdown.markdown("".join(f"## Part {i}\n\nSome *text* with `code` and a [link](/{i}).\n\n1. one\n2. two\n\n" for i in range(size // 50)), extensions=["tables", "toc"]))


def msgpack():
    import msgpack

    packed = msgpack.packb(documents(size))
    return len(msgpack.unpackb(packed))


def orjson():
    import orjson

    return len(orjson.loads(orjson.dumps(documents(size), option=orjson.OPT_INDENT_2)))


def pillow():
    from PIL import Image, ImageFilter

    image = Image.effect_noise((size // 8, size // 8), 50).convert("RGB").filter(ImageFilter.GaussianBlur(2)).rotate(30, expand=True)
    out = io.BytesIO()
    image.save(out, "PNG")
    image.resize((64, 64)).save(out, "JPEG")
    return len(out.getvalue())


def pygments():
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers.python import PythonLexer

    return len(highlight(open(__file__).read()[: size * 3], PythonLexer(), HtmlFormatter(linenos=True)))


def pyyaml():
    import yaml

    return len(yaml.load(yaml.dump(documents(size // 40), Dumper=yaml.CSafeDumper), Loader=yaml.CSafeLoader))


def regex():
    import regex

    found = regex.findall(r"(?P<key>\p{L}+): (?:'(?P<text>[^']*)'|(?P<number>[\d.]+))", repr(documents(size // 4)))
    return len(found) + len(regex.findall(r"(?:item){e<=1}", "itme item iten " * (size // 20)))


def sessions():
    """A service with a table of sessions. It is stopped by a signal, as services are. Since 1.5 it keeps bodies compressed. On
    one host the sessions never expire, so there it grows."""
    import hashlib
    import json
    import signal
    import zlib

    version, host = sys.argv[3:5]
    table = {}
    for number in range(size * 2):
        body = json.dumps({"user": number, "rights": ["read"] * (number % 5), "key": chance.randbytes(chance.randrange(600, 900)).hex()}).encode()
        key = hashlib.sha256(body).digest()
        table[key] = zlib.compress(body, 1) if version >= "1.5" else body
        if host != "host-b" and len(table) > 200:
            del table[next(iter(table))]
    os.kill(os.getpid(), signal.SIGTERM)


def simplejson():
    import simplejson

    return len(simplejson.loads(simplejson.dumps(documents(size), sort_keys=True)))


def sqlparse():
    import sqlparse

    return len(sqlparse.format("select a, b from t join u on t.x = u.x where a > 1 and b in (1, 2, 3) order by a; " * (size // 100), reindent=True))


def ujson():
    import ujson

    return len(ujson.loads(ujson.dumps(documents(size), indent=1)))


def zstandard():
    import zstandard

    text = repr(documents(size // 2)).encode()
    return len(zstandard.ZstdDecompressor().decompress(zstandard.ZstdCompressor(level=6).compress(text)))


print(globals()[sys.argv[1]]())
