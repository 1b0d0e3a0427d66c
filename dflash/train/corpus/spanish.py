"""Translation tasks: English sentences from a small lexicon and grammar, with their Spanish."""

from __future__ import annotations

import random
from dataclasses import dataclass

from dflash.train.corpus import words
from dflash.train.corpus.task import Task


@dataclass(frozen=True, slots=True)
class _Noun:
    one: str
    many: str
    spanish_one: str
    spanish_many: str
    feminine: bool


def _nouns(table: str) -> tuple[_Noun, ...]:
    """Read ``english[:plural] spanish f|m`` entries; regular plurals are formed by rule."""
    found = []
    for entry in table.split(";"):
        english, spanish, gender = (part.strip() for part in entry.split(","))
        one, _, many = english.partition(":")
        plural = (
            spanish[:-1] + "ces"
            if spanish.endswith("z")
            else spanish + ("s" if spanish[-1] in "aeoé" else "es")
        )
        found.append(_Noun(one, many or one + "s", spanish, plural, gender == "f"))
    return tuple(found)


_BEINGS = _nouns(
    "boy,niño,m;girl,niña,f;woman:women,mujer,f;man:men,hombre,m;teacher,maestra,f;doctor,médico,m;"
    "cat,gato,m;dog,perro,m;bird,pájaro,m;horse,caballo,m;cow,vaca,f;duck,pato,m;rabbit,conejo,m;"
    "friend,amigo,m;neighbour,vecina,f;student,alumno,m;baker,panadero,m;farmer,granjero,m;"
    "nurse,enfermera,f;cook,cocinera,f;king,rey,m;queen,reina,f;soldier,soldado,m;sailor,marinero,m;"
    "grandmother,abuela,f;grandfather,abuelo,m;sister,hermana,f;brother,hermano,m;aunt,tía,f;uncle,tío,m"
)
_THINGS = _nouns(
    "house,casa,f;book,libro,m;table,mesa,f;chair,silla,f;letter,carta,f;apple,manzana,f;flower,flor,f;"
    "car,coche,m;boat,barco,m;window,ventana,f;door,puerta,f;key,llave,f;box:boxes,caja,f;hat,sombrero,m;"
    "shirt,camisa,f;shoe,zapato,m;lamp,lámpara,f;clock,reloj,m;picture,cuadro,m;bottle,botella,f;"
    "glass:glasses,vaso,m;plate,plato,m;knife:knives,cuchillo,m;spoon,cuchara,f;tree,árbol,m;"
    "orange,naranja,f;cake,pastel,m;egg,huevo,m;fish:fish,pez,m;stone,piedra,f;ball,pelota,f;"
    "bicycle,bicicleta,f;guitar,guitarra,f;map,mapa,m;newspaper,periódico,m;pencil,lápiz,m;"
    "bag,bolsa,f;coat,abrigo,m;ring,anillo,m;mirror,espejo,m;bed,cama,f;blanket,manta,f;"
    "basket,cesta,f;candle,vela,f;phone,teléfono,m;ticket,billete,m;coin,moneda,f;photo,foto,f"
)
_ADJECTIVES = tuple(
    tuple(entry.split(","))
    for entry in (
        "red,rojo;white,blanco;black,negro;yellow,amarillo;small,pequeño;new,nuevo;pretty,bonito;"
        "cheap,barato;expensive,caro;clean,limpio;dirty,sucio;tall,alto;short,bajo;long,largo;"
        "round,redondo;old,viejo;strange,extraño;heavy,pesado;light,ligero;broken,roto;full,lleno;"
        "empty,vacío;cold,frío;warm,cálido;famous,famoso;perfect,perfecto;modern,moderno;quiet,tranquilo;"
        "big,grande;green,verde;strong,fuerte;elegant,elegante;sad,triste;brilliant,brillante"
    ).split(";")
)
_STATES = {"clean", "dirty", "broken", "full", "empty", "sad"}  # said with estar, not ser
_VERBS = tuple(
    tuple(entry.split(","))
    for entry in (
        # base, third person, past, Spanish infinitive, third person, past
        "see,sees,saw,ver,ve,vio;buy,buys,bought,comprar,compra,compró;sell,sells,sold,vender,vende,vendió;"
        "find,finds,found,encontrar,encuentra,encontró;lose,loses,lost,perder,pierde,perdió;"
        "want,wants,wanted,querer,quiere,quiso;need,needs,needed,necesitar,necesita,necesitó;"
        "carry,carries,carried,llevar,lleva,llevó;draw,draws,drew,dibujar,dibuja,dibujó;"
        "paint,paints,painted,pintar,pinta,pintó;clean,cleans,cleaned,limpiar,limpia,limpió;"
        "break,breaks,broke,romper,rompe,rompió;use,uses,used,usar,usa,usó;hide,hides,hid,esconder,esconde,escondió;"
        "forget,forgets,forgot,olvidar,olvida,olvidó;look for,looks for,looked for,buscar,busca,buscó;"
        "bring,brings,brought,traer,trae,trajo;choose,chooses,chose,elegir,elige,eligió;"
        "keep,keeps,kept,guardar,guarda,guardó;send,sends,sent,enviar,envía,envió;"
        "repair,repairs,repaired,reparar,repara,reparó;receive,receives,received,recibir,recibe,recibió"
    ).split(";")
)
_PLACES = tuple(
    tuple(entry.split(","))
    for entry in (
        "in the garden,en el jardín;in the kitchen,en la cocina;in the street,en la calle;"
        "at the market,en el mercado;at school,en la escuela;at the station,en la estación;"
        "in the park,en el parque;on the beach,en la playa;in the village,en el pueblo;"
        "in the city,en la ciudad;near the river,cerca del río;near the church,cerca de la iglesia;"
        "under the bridge,bajo el puente;behind the house,detrás de la casa;in the library,en la biblioteca;"
        "in the forest,en el bosque;in the museum,en el museo;at the hotel,en el hotel;"
        "next to the door,junto a la puerta;on the island,en la isla;in the shop,en la tienda;"
        "in the mountains,en las montañas"
    ).split(";")
)
_NOW = tuple(
    tuple(entry.split(","))
    for entry in (
        "Every morning,Cada mañana;Every day,Todos los días;Today,Hoy;Now,Ahora;In summer,En verano;"
        "In winter,En invierno;On Sundays,Los domingos;On Mondays,Los lunes;Sometimes,A veces;"
        "In the afternoon,Por la tarde;At night,Por la noche;Often,A menudo"
    ).split(";")
)
_THEN = tuple(
    tuple(entry.split(","))
    for entry in (
        "Yesterday,Ayer;Last night,Anoche;Last week,La semana pasada;Last year,El año pasado;"
        "Two days ago,Hace dos días;One day,Un día;In the end,Al final;Last summer,El verano pasado;"
        "That morning,Aquella mañana"
    ).split(";")
)
_NUMBERS = (
    "two dos;three tres;four cuatro;five cinco;six seis;seven siete;eight ocho;nine nueve;ten diez;"
    "eleven once;twelve doce;twenty veinte"
).split(";")
_ASKS = (
    "Translate into Spanish: {text}",
    "Translate to Spanish.\n{text}",
    "How do you say this in Spanish? {text}",
    "Please translate this text into Spanish:\n\n{text}",
    "{text}\n\nTranslate that into Spanish.",
    "Write this in Spanish: {text}",
)

_Pair = tuple[str, str]


def _inflect(adjective: str, noun: _Noun, *, plural: bool = False) -> str:
    if noun.feminine and adjective.endswith("o"):
        adjective = adjective[:-1] + "a"
    return adjective + ("s" if plural else "")


def _phrase(rng: random.Random, noun: _Noun, *, definite: bool = True) -> _Pair:
    """``the red house`` with ``la casa roja``; the adjective comes in half of the time."""
    english, spanish = noun.one, noun.spanish_one
    if rng.random() < 0.5:
        adjective, translated = rng.choice(_ADJECTIVES)
        english, spanish = f"{adjective} {english}", f"{spanish} {_inflect(translated, noun)}"
    if definite:
        return f"the {english}", f"{'la' if noun.feminine else 'el'} {spanish}"
    return words.a(english), f"{'una' if noun.feminine else 'un'} {spanish}"


def _subject(rng: random.Random) -> _Pair:
    if rng.random() < 0.35:
        name = words.given_name(rng)
        return name, name
    return _phrase(rng, rng.choice(_BEINGS))


def _object(rng: random.Random) -> _Pair:
    noun = rng.choice(_THINGS)
    if rng.random() < 0.3:
        number, translated = rng.choice(_NUMBERS).split()
        adjective, word = rng.choice(_ADJECTIVES)
        return (
            f"{number} {adjective} {noun.many}",
            f"{translated} {noun.spanish_many} {_inflect(word, noun, plural=True)}",
        )
    return _phrase(rng, noun, definite=rng.random() < 0.5)


def _action(rng: random.Random) -> _Pair:
    who, quien = _subject(rng)
    what, que = _object(rng)
    base, third, past, infinitive, tercera, pasado = rng.choice(_VERBS)
    tense = rng.randrange(5)
    if tense == 0:
        return f"{who} {third} {what}", f"{quien} {tercera} {que}"
    if tense == 1:
        return f"{who} {past} {what}", f"{quien} {pasado} {que}"
    if tense == 2:
        return f"{who} does not {base} {what}", f"{quien} no {tercera} {que}"
    if tense == 3:
        return f"{who} can {base} {what}", f"{quien} puede {infinitive} {que}"
    return f"{who} is going to {base} {what}", f"{quien} va a {infinitive} {que}"


def _timed(rng: random.Random) -> _Pair:
    who, quien = _subject(rng)
    what, que = _object(rng)
    _, third, past, _, tercera, pasado = rng.choice(_VERBS)
    if rng.random() < 0.5:
        when, cuando = rng.choice(_NOW)
        return f"{when}, {who} {third} {what}", f"{cuando}, {quien} {tercera} {que}"
    when, cuando = rng.choice(_THEN)
    return f"{when}, {who} {past} {what}", f"{cuando}, {quien} {pasado} {que}"


def _existence(rng: random.Random) -> _Pair:
    where, donde = rng.choice(_PLACES)
    noun = rng.choice(_THINGS + _BEINGS)
    if rng.random() < 0.4:
        number, translated = rng.choice(_NUMBERS).split()
        return (
            f"there are {number} {noun.many} {where}",
            f"hay {translated} {noun.spanish_many} {donde}",
        )
    what, que = _phrase(rng, noun, definite=False)
    return f"there is {what} {where}", f"hay {que} {donde}"


def _quality(rng: random.Random) -> _Pair:
    noun = rng.choice(_THINGS)
    adjective, translated = rng.choice(_ADJECTIVES)
    article = "la" if noun.feminine else "el"
    degree, grado = rng.choice((("", ""), ("very ", "muy "), ("too ", "demasiado ")))
    estar = adjective in _STATES
    verb, ser = rng.choice(
        (("is", "está" if estar else "es"), ("was", "estaba" if estar else "era"))
    )
    return (
        f"the {noun.one} {verb} {degree}{adjective}",
        f"{article} {noun.spanish_one} {ser} {grado}{_inflect(translated, noun)}",
    )


def _sentence(rng: random.Random) -> _Pair:
    make = rng.choice((_action, _action, _timed, _existence, _quality))
    english, spanish = make(rng)
    if make is _action and rng.random() < 0.4:
        where, donde = rng.choice(_PLACES)
        english, spanish = f"{english} {where}", f"{spanish} {donde}"
    if rng.random() < 0.25:
        more, mas = rng.choice((_action, _quality, _existence))(rng)
        link, nexo = rng.choice((("and", "y"), ("but", "pero"), ("because", "porque")))
        if nexo == "y" and mas.startswith("I"):  # y becomes e before the same sound
            nexo = "e"
        english, spanish = f"{english}, {link} {more}", f"{spanish}, {nexo} {mas}"
    return words.upper_first(english) + ".", words.upper_first(spanish) + "."


def draw(rng: random.Random) -> Task:
    """Two to five sentences to translate."""
    pairs = [_sentence(rng) for _ in range(rng.randint(2, 5))]
    text = " ".join(english for english, _ in pairs)
    answer = " ".join(spanish for _, spanish in pairs)
    return Task(rng.choice(_ASKS).format(text=text), answer)
