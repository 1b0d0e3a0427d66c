"""Chat tasks: short stories about a hero, a thing and a place that the prompt names.

The grammar is wide and much of it hangs on who the hero is, what the thing does and how the place
looks, so that the continuation is a real choice at every clause: a story is the hard case to draft.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from dflash.train.corpus import words
from dflash.train.corpus.task import Task

# role | home or work | trait | what it is good at
_ROLES = """
fox|a den under the roots|clever|finding hidden paths
bear|a cave full of moss|gentle|lifting heavy logs
rabbit|a burrow by the hedge|quick|running through tall grass
owl|a hole in the old oak|wise|seeing in the dark
mouse|a box behind the stove|brave|slipping through cracks
cat|a basket near the fire|proud|sitting without a sound
dog|a hut beside the gate|loyal|following a scent
hedgehog|a heap of dry leaves|shy|rolling into a ball
squirrel|a nest of twigs|busy|remembering where nuts lie
turtle|a pond with lilies|patient|waiting for the right moment
frog|a leaf on the water|cheerful|singing in the rain
crow|the roof of a barn|curious|opening locks
donkey|a stable with a crooked door|stubborn|carrying sacks uphill
goose|a yard full of mud|loud|warning the others
otter|a bend of the stream|playful|diving for pebbles
wolf|a rock above the valley|lonely|hearing far away sounds
beaver|a lodge of branches|careful|building walls
swan|a quiet lake|elegant|gliding past the reeds
badger|a tunnel in the hill|grumpy|digging deep holes
deer|a clearing among birches|timid|leaping over ditches
baker|a shop that smelled of bread|cheerful|kneading dough
sailor|a boat with a patched sail|bold|reading the stars
painter|a room full of brushes|dreamy|mixing strange colours
gardener|a shed with clay pots|patient|growing sweet peas
tailor|a table covered in cloth|neat|sewing tiny stitches
miller|a mill with slow wings|calm|listening to the wind
knight|a tower without a roof|fearless|riding through storms
clockmaker|a workshop of ticking wheels|exact|mending broken springs
teacher|a classroom with green walls|kind|explaining hard words
fisherman|a hut made of driftwood|silent|tying strong knots
shepherd|a meadow behind the hills|humble|counting sheep
musician|a wagon painted blue|lively|playing forgotten tunes
carpenter|a barn full of planks|steady|carving small birds
postman|a house at the crossroads|punctual|knowing every door
cook|a kitchen with copper pans|merry|tasting new soups
librarian|a hall of dusty shelves|quiet|finding lost pages
blacksmith|a forge that never cooled|strong|bending hot iron
juggler|a tent at the fair|funny|catching anything
pilot|a hangar near the sea|daring|flying above clouds
astronomer|a dome on the hilltop|thoughtful|naming new stars
"""
# thing | how it looks | what it does | what it is good for
_THINGS = """
lantern|rusty|glowed with a soft light|to light the way home
key|tiny|fitted a door that nobody knew|to open the old gate
map|torn|showed a path in red ink|to find the hidden spring
bell|cracked|rang without being touched|to call the others
kite|striped|danced in the wind|to reach the highest branch
drum|painted|sounded like thunder|to scare away the storm
mirror|round|showed the face of a stranger|to send signals to the ships
compass|silver|pointed to the east|to cross the dark woods
flute|thin|played a slow melody|to calm the angry river
umbrella|huge|opened with a snap|to keep everyone dry
book|heavy|whispered when it was opened|to learn the oldest song
ring|plain|grew warm in the hand|to make a promise
rope|long|held as firm as iron|to climb the steep wall
cup|wooden|never became empty|to share water with travellers
coin|worn|landed on its edge|to pay the ferryman
feather|white|floated but never fell|to write a letter
boot|muddy|walked a step by itself|to cross the deep puddles
clock|tall|struck thirteen times|to wake the sleepy town
seed|strange|cracked open at night|to grow a tree of lights
blanket|woollen|smelled of summer|to warm the smallest child
violin|dusty|hummed in its case|to open the festival
bottle|green|held a folded note|to solve the riddle
button|shiny|rolled uphill|to mend the coat of the king
ladder|short|grew longer at every step|to look over the clouds
spoon|bent|stirred without a hand|to cook soup for all
pebble|blue|shone under water|to remember the journey
candle|stubby|burned without melting|to watch through the night
basket|deep|filled itself with berries|to feed the hungry birds
scarf|endless|changed its colour|to tie up the broken bridge
telescope|brass|found a new star|to see the far island
whistle|wooden|called the north wind|to bring back the lost sheep
hat|pointed|made its wearer small|to slip under the door
sled|fast|slid even on grass|to race down the hill
teapot|chipped|poured golden tea|to cheer up the old neighbour
box|locked|hummed like bees|to keep a secret safe
letter|sealed|had no name on it|to end a long quarrel
shell|pale|told stories of the sea|to find the way back
wheel|broken|turned backwards|to start the mill again
needle|sharp|sewed without thread|to repair the torn sail
crown|paper|fitted every head|to choose the leader of the game
"""
# place | what it looks like | what is heard there
_PLACES = """
the forest|where the trees stood close together|branches creaked
the harbour|where tall ships slept|ropes slapped against the masts
the mountain|whose top was always white|stones rolled down the slope
the desert|where the sand was red|the wind drew long lines
the market|where people traded spices|voices rose and fell
the island|which no ship had visited for years|waves broke on the rocks
the castle|with its seven broken towers|steps echoed in the halls
the river|which ran faster than a horse|water rushed over the stones
the swamp|where green mist hung low|frogs croaked in chorus
the valley|between two sleeping hills|bells rang from far away
the village|with its crooked chimneys|children laughed in the lanes
the cave|which was as deep as a well|drops fell into a pool
the meadow|full of tall yellow flowers|bees hummed from bloom to bloom
the bridge|that crossed the widest gap|planks groaned under every step
the beach|covered with smooth stones|gulls cried above the foam
the mill|whose wheel had stopped|mice rustled in the straw
the library|with more books than windows|pages turned by themselves
the orchard|where the apples were ripe|leaves whispered in the breeze
the lighthouse|at the very end of the land|the lamp hissed in the fog
the railway station|where no train had come for weeks|a sign swung on its chain
the lake|as flat as a plate of glass|fish jumped at dusk
the tower|taller than any tree|crows called from the roof
the garden|behind a high stone wall|a fountain splashed
the crossroads|where four old roads met|a cart rattled by
the glacier|which shone like blue glass|the ice cracked and sang
the theatre|with its faded curtains|an unseen piano played
"""
_ASKS = (
    "Tell me a short story about {hero} the {role}, {thing} and {place}.",
    "Write a short story in which {hero} the {role} finds {thing} in or near {place}.",
    "I would like a story about {a_role} called {hero}, {thing} and {place}.",
    "Please tell a story: {hero}, {a_role}, comes to {place} and sees {thing}.",
    "Write a little story. Hero: {hero} the {role}. Friend: {friend}. Thing: {thing}. Place: {place}.",
    "Tell me about {hero} the {role} and {friend}, and how they found {thing} at {place}.",
    "Can you write a bedtime story with {hero} the {role}, {friend}, {thing} and {place}?",
    "A story for children about {thing} that {hero} the {role} and {friend} discover near {place}.",
)
_OPENINGS = (
    "Once there was {a_trait} {role} called {hero} who lived in {home}.",
    "{hero} the {role} lived in {home} and was known for being {trait}.",
    "In {home} there lived {a_role} by the name of {hero}.",
    "Everybody liked {hero}, the {trait} {role} from {home}.",
    "Long ago, {a_role} named {hero} was better than anyone at {skill}.",
    "Nobody was as {trait} as {hero} the {role}, who had spent {years} years in {home}.",
    "This is the story of {hero}, {a_trait} {role} with a talent for {skill}.",
    "{hero} was {a_role}, {trait} and a little {mood}, and loved {skill}.",
)
_DEPARTURES = (
    "One {weather} {time}, {hero} set out for {place}, {looks}.",
    "On a {weather} {time} the road led {hero} to {place}, {looks}.",
    "It was a {weather} {time} when {hero} first came to {place}, {looks}.",
    "One {time} {hero} felt {mood} and decided to walk to {place}, {looks}.",
    "After a {weather} {time}, {hero} woke up near {place}, {looks}.",
    "{hero} had always wanted to see {place}, {looks}, and left on a {weather} {time}.",
)
_SOUNDS = (
    "There, {sound}, and {hero} felt {mood}.",
    "All around, {sound}.",
    "It was so still that only {insect} could be heard; then {sound}.",
    "{hero} listened while {sound}.",
    "Somewhere {sound}, but {hero} was not afraid.",
)
_FINDS = (
    "Under {cover} lay a {look} {thing}, and it {does}.",
    "Behind {cover} {hero} found a {look} {thing} that {does}.",
    "Suddenly {hero} saw a {look} {thing} beside {cover}.",
    "A {look} {thing} was hidden in {cover}; it {does}.",
    "{hero} almost stepped on a {look} {thing}, half covered by {cover}.",
    'Next to {cover} stood a sign: "Take the {thing}, but be {trait}."',
)
_FRIENDS = (
    '"What is that?" asked {friend}, {coming}.',
    "At that moment {friend} appeared, {coming}.",
    '{friend} came along, {coming}, and said: "I have heard of this {thing}."',
    "Luckily {friend} was not far away and came {coming}.",
    '"Be careful," whispered {friend}, {coming}.',
    "{friend} looked at the {thing} and began to {react}.",
)
_TROUBLES = (
    "But {trouble}, and there was no time to lose.",
    "Then {trouble}.",
    "Before anyone could speak, {trouble}.",
    "They were about to leave when {trouble}.",
    "Just then {trouble}, and everybody looked {mood}.",
)
_DEEDS = (
    "{hero} thought about {skill} and used the {thing} {use}.",
    "So {hero} took the {thing} {use}, while {friend} began to {react}.",
    'Together they used the {thing} {use}. "{cry}" shouted {friend}.',
    "With a {adverb} smile {hero} lifted the {thing} {use}.",
    "{friend} had an idea: they could take the {thing} {use}.",
    "Being {trait}, {hero} knew what to do and used the {thing} {use}.",
)
_ENDINGS = (
    "From that day on, {hero} and {friend} met at {place} every {time}.",
    "In the evening they shared {food} and {food2}, and {hero} was {happy}.",
    "{hero} gave the {thing} to {friend} and went home {happy}.",
    "They left the {thing} in {place} for the next traveller, and both felt {happy}.",
    "Since then the {thing} has hung in {home}, and {friend} visits every {day}.",
    'When {friend} asked if it was over, {hero} only said: "{moral}"',
    "The people of {place} still tell how {hero} saved them, and how they ate {food} until {day}.",
)
_SLOTS = {
    "weather": "windy;foggy;sunny;rainy;cold;stormy;warm;cloudy;snowy;golden;frosty;misty",
    "time": "morning;evening;afternoon;night;autumn day;spring day;summer night;winter day;Sunday;holiday",
    "mood": "curious;tired;restless;hopeful;nervous;lonely;excited;hungry;puzzled;worried;bored;sleepy",
    "cover": "a mossy stone;a fallen tree;an old barrel;some wet leaves;a thorny bush;a pile of nets;"
    "a broken fence;a heap of snow;the third step;a rusty cart;the tall ferns;a wooden bench",
    "insect": "a beetle;a cricket;one bee;a distant clock;the grass;a single drop",
    "coming": "out of breath;with muddy shoes;carrying a sack of onions;singing loudly;wrapped in a red cloak;"
    "on a creaking bicycle;holding a torch;with a crumb on the nose;laughing;leaning on a stick;"
    "from behind a tree;balancing on the wall",
    "react": "laugh;dance;cry with joy;count to ten;hum a song;shiver;clap;run in circles;whistle;tell a joke;"
    "push from behind;hold the light",
    "trouble": "the ground began to shake;a cold rain set in;the path behind them vanished;a giant shadow fell;"
    "the water started to rise;three thieves jumped out;all the lights went out;a child cried for help;"
    "the gate slammed shut;a swarm of wasps came near;the old bridge fell down;a cloud swallowed the moon;"
    "the wind tore the roof away;a hungry goat ate the rope",
    "cry": "Higher!;Now or never!;It works!;Hold on!;What a day!;Look at that!;Hurry up!;I knew it!",
    "adverb": "quick;shy;wide;secret;tired;broad;crooked;brave",
    "happy": "happier than ever;proud and tired;full of new plans;glad to be alive;warm at heart;"
    "wide awake;content;ready for the next adventure",
    "moral": "Good things grow slowly.;Two see more than one.;Never trust a shortcut.;Even small hands can help.;"
    "Every road ends at a door.;Courage is a kind of light.;What you share becomes bigger.;Listen before you leap.",
    "years": "three;seven;ten;twelve;twenty;forty",
}
_CHOICES = {slot: tuple(values.split(";")) for slot, values in _SLOTS.items()}


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a table above: the word and what belongs to it."""

    word: str
    details: tuple[str, ...]


def _table(text: str) -> tuple[_Row, ...]:
    rows = (line.split("|") for line in text.strip().splitlines())
    return tuple(_Row(word, tuple(details)) for word, *details in rows)


_ROLE_ROWS, _THING_ROWS, _PLACE_ROWS = _table(_ROLES), _table(_THINGS), _table(_PLACES)


def _told(rng: random.Random, frame: str, known: dict[str, str]) -> str:
    """Fill a frame: from what is known of this story, else by chance."""

    def slot(match: re.Match[str]) -> str:
        name = match[1]
        return known[name] if name in known else rng.choice(_CHOICES[name])

    return words.upper_first(re.sub(r"\{(\w+)\}", slot, frame))


def draw(rng: random.Random) -> Task:
    """One story of six to nine sentences."""
    hero, friend = words.distinct(rng, words.given_name, 2)
    role, thing, place = rng.choice(_ROLE_ROWS), rng.choice(_THING_ROWS), rng.choice(_PLACE_ROWS)
    home, trait, skill = role.details
    food, food2 = rng.sample(words.FOODS, 2)
    known = {
        "hero": hero, "friend": friend, "role": role.word, "a_role": words.a(role.word), "home": home, "trait": trait,
        "a_trait": words.a(trait), "skill": skill, "look": thing.details[0], "does": thing.details[1],
        "use": thing.details[2], "place": place.word, "looks": place.details[0], "sound": place.details[1],
        "food": food, "food2": food2, "day": rng.choice(words.DAYS),
    }  # fmt: skip
    ask = rng.choice(_ASKS)
    asked = dict(
        known,
        thing=words.a(f"{thing.details[0]} {thing.word}" if rng.random() < 0.3 else thing.word),
    )
    prompt = re.sub(r"\{(\w+)\}", lambda match: asked[match[1]], ask)
    if "{friend}" not in ask and rng.random() < 0.5:
        prompt += f" {friend} should be in it too."
    known["thing"] = thing.word
    parts = [_OPENINGS, _DEPARTURES, _FINDS, _FRIENDS, _DEEDS, _ENDINGS]
    if rng.random() < 0.6:
        parts.insert(2, _SOUNDS)
    if rng.random() < 0.7:
        parts.insert(-2, _TROUBLES)
    story = " ".join(_told(rng, rng.choice(frames), known) for frames in parts)
    keep = tuple(word for word in (hero, friend, thing.word) if re.search(rf"\b{word}\b", prompt))
    return Task(prompt, story, keep=keep)
