"""The words of which the titles of invented films are made, by genre.

A pattern is filled from the word lists of the film's first genre and from the common lists; ``_``
stands for a space inside a word. All people and places are made up.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """What titles of one genre are made of. Every field but ``patterns`` is a space-separated
    list.
    """

    adjectives: str
    nouns: str
    plurals: str
    patterns: tuple[str, ...]


PEOPLE = (
    "Ada Agnes Alma Anton Basil Beatrix Bruno Cassian Clementine Cordelia Dario Delphine Dorothea"
    " Edmund Elspeth Emeric Esther Fabian Felix Fenella Florian Frieda Gideon Greta Hattie Hugo Ida"
    " Ignatius Imogen Ingrid Ivo Jasper Josefa Juno Kaspar Lavinia Leopold Linus Lotte Lucian Mabel"
    " Magnus Marguerite Matilda Maud Milo Minerva Nell Nestor Octavia Odile Olive Orson Otto"
    " Ottilie Pascal Penelope Percival Petra Philippa Quentin Ramona Roland Rosalind Rufus Sabine"
    " Saskia Selma Silas Solveig Sybil Tabitha Theodora Tobias Ursula Valentin Viola Wilhelmina"
    " Winifred Xaver Yvette Zelda"
)
SURNAMES = (
    "Abernethy Ashdown Bellweather Blackwood Brandt Calloway Castellane Corvin Crane Darrow"
    " Delacroix Drummond Eastlake Fairbrother Farrow Fenwick Gallant Garrick Halloran Hargreave"
    " Hawthorn Holloway Jessup Kestrel Kowalczyk Lachance Langford Lockwood Marchetti Marlow"
    " Merriweather Montague Nightingale Okonjo Pemberton Pickering Quill Ravenscroft Redfern"
    " Rosenthal Sandoval Sinclair Sorrel Stillwell Tanaka Thackeray Thornbury Underhill Valdez"
    " Vantongeren Vesper Voss Wainwright Whitlock Winterbourne Yarrow"
)
PLACES = (
    "Aldermere Amberley_Cross Ashkirk Bellhaven Blackwater_Quay Bram_Hollow Calder_Point Candlewick"
    " Castle_Orrin Coldharbour Cresswell Dunmarrow East_Vellum Elderwick Fallowmere Farrowdale"
    " Fenmoor Gallows_Bend Glassmere Grey_Harbour Greyling Halcyon_Bay Harrowgate_Sound Hollin_Row"
    " Ivory_Quay Juniper_Falls Kestrel_Ridge Kilmarrow Lantern_Hill Larkmoor Lower_Ashby Marrow_Bay"
    " Mercy_Creek Mirefield Montefalco North_Orley Oldcastle Osterhaven Pine_Hollow Port_Aster"
    " Quarry_Lake Quiet_Bay Ravenna_Pass Redwater Rook_Island Saint_Orlan Salt_Harbour Santa_Mirela"
    " Sele_Island Silverpool Stonecrop Thistle_Down Tolvane Tresk Upper_Wexley Valparosa Vellmoor"
    " Wending Westermarsh Whitcombe Winter_Quay Wrenfield"
)
NUMBERS = "Two Three Four Five Six Seven Eight Nine Ten Eleven Twelve Thirteen Twenty Forty Ninety"
SMALL = "3 4 5 6 7 8 9 11 12 13 17 19 21 23 27 31 36 42"
STREETS = (
    "Almond_Street Baker's_Row Candle_Lane Chapel_Street Cherry_Street Clover_Lane Fiddler's_Lane"
    " Hazel_Avenue Lamplight_Lane Laurel_Avenue Linden_Square Orchard_Street Rosewater_Street"
    " Swallow_Street Tulip_Avenue Vine_Street"
)
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
MONTHS = "January February March April May June July August September October November December"
ANIMALS = (
    "Badger Beaver Camel Crab Crow Donkey Dormouse Duckling Ferret Firefly Fox Gecko Goose Hare"
    " Hedgehog Heron Hippo Lamb Lemur Lobster Magpie Mole Moose Mouse Newt Octopus Otter Owl Panda"
    " Penguin Pigeon Puffin Raccoon Seal Snail Sparrow Squirrel Tortoise Turtle Walrus Whale Wombat"
)

# patterns that suit any genre; they keep the more memorable ones below from coming back too often
COMMON_PATTERNS = (
    "The {adj} {noun}",
    "The {noun} of {place}",
    "The {surname} {noun}",
    "{person}'s {noun}",
    "The {noun} of {person} {surname}",
    "{plural} of {place}",
    "The {adj} {plural}",
    "{month} {noun}",
    "{place}",
)

GENRES: dict[str, Words] = {
    "Action": Words(
        "Burning Last Iron Bulletproof Reckless Fatal Crimson Final Relentless Lethal Maximum"
        " Armoured Rogue Thundering",
        "Strike Convoy Vengeance Detonator Ambush Getaway Hammer Outlaw Overdrive Recoil Vanguard"
        " Uprising Extraction Inferno Blockade Deadline Shockwave Showdown",
        "Bullets Mercenaries Enforcers Wheels Renegades Hurricanes",
        (
            "{adj} {noun}",
            "The {surname} {noun}",
            "{number} Hours to {place}",
            "{noun} at {place}",
            "Maximum {noun}",
            "Point of {noun}",
            "{surname}: {noun}",
            "{number} {plural}",
            "Code Name {animal}",
            "No {noun} for {surname}",
        ),
    ),
    "Adventure": Words(
        "Forgotten Lost Golden Uncharted Distant Sunken Emerald Wild Farthest Nameless Roaring"
        " Boundless",
        "Expedition Compass Voyage Island Treasure Caravan River Horizon Summit Canyon Temple Map"
        " Lagoon Passage Archipelago",
        "Explorers Pirates Rivers Sails Castaways Summits",
        (
            "The {adj} {noun}",
            "The {noun} of {place}",
            "{person} and the {adj} {noun}",
            "Beyond the {adj} {noun}",
            "The Road to {place}",
            "{number} {plural} and a {noun}",
            "Journey to the {adj} {noun}",
            "Captain {surname}'s {noun}",
            "The {plural} of {place}",
            "North of the {noun}",
        ),
    ),
    "Animation": Words(
        "Tiny Brave Sleepy Runaway Purple Clumsy Curious Flying Grumpy Magnificent Upside-Down"
        " Singing Marvellous",
        "Kite Balloon Cloud Umbrella Teapot Snowflake Acorn Toyshop Carousel Marble Moonbeam Puddle"
        " Rocket Button",
        "Crayons Balloons Snowmen Toys Stars Buttons",
        (
            "{person} the {adj} {animal}",
            "{person} and the {adj} {animal}",
            "The {animal} Who Loved {plural}",
            "{number} Little {plural}",
            "The {adj} {noun}",
            "The {animal} and the {noun}",
            "{person}'s {adj} {noun}",
            "A {noun} for {person}",
            "The {animal} of {place}",
        ),
    ),
    "Comedy": Words(
        "Terrible Perfectly_Normal Second-Hand Awkward Unlikely Absent-Minded Slightly_Crooked"
        " Overpaid Borrowed Charming Hopeless Improbable",
        "Honeymoon Neighbour Sofa Inheritance Roommate Wedding Reunion Vacation Promotion Landlord"
        " Moustache Barbecue Caravan Mother-in-Law Dentist",
        "Bridesmaids Neighbours Cousins Waiters Dentists Houseguests",
        (
            "My {adj} {noun}",
            "{person} Buys a {animal}",
            "The {adj} {noun}",
            "Too Many {plural}",
            "How to Lose a {noun}",
            "Meet the {family}",
            "The {family} Go to {place}",
            "{number} {plural} and a {noun}",
            "Oh No, {person}!",
            "Never on a {day}",
            "Who Invited {person}?",
            "The {noun} Next Door",
            "{person} Is Late Again",
        ),
    ),
    "Crime": Words(
        "Dirty Crooked Cold Stolen Marked Silent Double Counterfeit Rotten Hungry Smoked Quiet",
        "Heist Alibi Ledger Bribe Syndicate Witness Verdict Informant Vault Racket Jackpot Precinct"
        " Evidence Accomplice Launderer",
        "Thieves Diamonds Debts Gangsters Safecrackers Aces",
        (
            "The {adj} {noun}",
            "The {surname} {noun}",
            "{number} {plural}",
            "{plural} of {place}",
            "A {noun} in {place}",
            "{adj} Money",
            "Dishonour Among {plural}",
            "The {place} Job",
            "{surname} Pays in Cash",
            "Partners in {noun}",
            "The Fall of {person} {surname}",
        ),
    ),
    "Documentary": Words(
        "Invisible Hidden Untold Living Fragile Endless Disappearing Ordinary Silent",
        "Archive Harvest Glacier Orchestra Factory Kitchen Workshop Market Reef Railway Lighthouse"
        " Library Beehive Marathon",
        "Bees Glaciers Bakers Lighthouses Beekeepers Railways Whales Volcanoes Mushrooms Cyclists"
        " Bridges Tailors",
        (
            "The Secret Life of {plural}",
            "In Search of {plural}",
            "{place}: A Year in the {noun}",
            "The Last {noun}",
            "Among {plural}",
            "{plural}: A {adj} History",
            "Inside the {noun}",
            "The {noun} of {place}",
            "What {plural} Know",
            "{number} Days in {place}",
            "Portrait of a {noun}",
        ),
    ),
    "Drama": Words(
        "Quiet Broken Distant Unspoken Gentle Long Fading Winter Copper Paper Patient Ordinary"
        " Faithful Bitter",
        "Orchard Lighthouse Inheritance Harvest Daughter Silence Letter Garden Piano House Winter"
        " Bridge Father Window Departure Sonata Confession",
        "Letters Sisters Windows Promises Brothers Winters Orchards",
        (
            "The {adj} {noun}",
            "{plural} of {place}",
            "The {noun} at {place}",
            "What {person} Knew",
            "{person} {surname}",
            "All the {adj} {plural}",
            "A {noun} in {month}",
            "After the {noun}",
            "Letters from {place}",
            "The {surname} {noun}",
            "{person}'s {noun}",
            "The Weight of {plural}",
            "Where the {noun} Ends",
        ),
    ),
    "Fantasy": Words(
        "Enchanted Silver Thorned Starlit Whispering Ancient Cursed Moonlit Shattered Everlasting"
        " Glass Hollow",
        "Crown Dragon Kingdom Spell Wizard Sword Realm Phoenix Throne Amulet Enchantress Prophecy"
        " Unicorn Grimoire",
        "Dragons Witches Kingdoms Runes Thrones Giants",
        (
            "The {adj} {noun}",
            "The {noun} of {place}",
            "{person} and the {adj} {noun}",
            "A Crown of {plural}",
            "The Last {noun} of {place}",
            "{plural} of the {adj} {noun}",
            "Heir to the {noun}",
            "Song of the {noun}",
            "The {adj} Chronicles of {place}",
            "{number} {plural}",
        ),
    ),
    "Horror": Words(
        "Hollow Bleeding Crawling Buried Rotting Pale Nameless Screaming Unburied Haunted Eyeless"
        " Feeding",
        "Cellar Attic Coffin Scarecrow Asylum Grave Crypt Séance Nursery Parasite Doll Morgue"
        " Undertaker Hunger Mirror",
        "Teeth Corpses Shadows Graves Ghouls Whispers",
        (
            "The {adj} {noun}",
            "Don't Open the {noun}",
            "It Waits in the {noun}",
            "The {noun} Beneath",
            "The Haunting of {place}",
            "{plural} in the {noun}",
            "{place} After Dark",
            "The {noun} Has No Face",
            "Night of the {adj} {noun}",
            "Something in the {noun}",
            "Return to {place}",
            "Mother of {plural}",
        ),
    ),
    "Musical": Words(
        "Dancing Singing Golden Starlight Swinging Midnight Velvet Sparkling Barefoot Marvellous",
        "Serenade Cabaret Ballroom Overture Chorus Tango Melody Waltz Encore Spotlight Songbird"
        " Saxophone Footlights",
        "Dancers Songbirds Trumpets Tenors Sequins Melodies",
        (
            "{place} Serenade",
            "The {adj} {noun}",
            "Sing, {person}, Sing!",
            "{number} {plural} on {street}",
            "Last {noun} in {place}",
            "{person}'s {noun}",
            "Dance Me to {place}",
            "A {noun} for {person}",
            "{adj} {plural}",
            "The {month} {noun}",
        ),
    ),
    "Mystery": Words(
        "Vanishing Crooked Locked Velvet Missing Poisoned Silent Seventh Painted Clockwork"
        " Unfinished Vacant",
        "Portrait Manuscript Cipher Key Letter Corridor Guest Clock Butler Photograph Telegram"
        " Staircase Widow Chandelier",
        "Suspects Clues Footprints Alibis Keys Strangers",
        (
            "The Case of the {adj} {noun}",
            "Murder at {place}",
            "The {adj} {noun}",
            "Who Moved the {noun}?",
            "The {surname} {noun}",
            "{number} {plural}",
            "Death of a {noun}",
            "A {noun} Goes Missing",
            "The {noun} at Number {small}",
            "Inspector {surname} Investigates",
            "Nobody Saw {person}",
            "The {place} Mystery",
        ),
    ),
    "Romance": Words(
        "Tender Reluctant Endless Accidental Secret Sunlit Second Stolen Summer Hopeless Beloved"
        " Blushing",
        "Kiss Promise Bouquet Heart Valentine Proposal Sweetheart Rendezvous Embrace Affair Vow"
        " Summer Bakery Elopement",
        "Hearts Kisses Roses Promises Sweethearts Vows",
        (
            "{person} and {person2}",
            "The {adj} {noun}",
            "Love in {place}",
            "A {noun} in {month}",
            "{number} {plural}",
            "Dear {person}",
            "Meet Me in {place}",
            "The {noun} on {street}",
            "Always, {person}",
            "An Evening with {person}",
            "Falling for {person}",
            "The {adj} {noun} of {person} {surname}",
        ),
    ),
    "Sci-Fi": Words(
        "Orbital Quantum Infinite Synthetic Cryogenic Lunar Parallel Stellar Binary Neural Galactic"
        " Zero-Gravity",
        "Protocol Android Colony Signal Satellite Paradox Starship Anomaly Machine Nebula Algorithm"
        " Singularity Airlock Replica",
        "Androids Moons Satellites Clones Galaxies Robots",
        (
            "The {adj} {noun}",
            "Signal from {star}",
            "The {star} {noun}",
            "{number} Moons of {star}",
            "{star} Rising",
            "The {noun} That Dreamed",
            "Colony {small}",
            "Project {star}",
            "Beyond {star}",
            "Memory of {plural}",
            "The Last {noun} on {star}",
            "{adj} {plural}",
        ),
    ),
    "Thriller": Words(
        "Deadly Blind Sleepless Frozen Hidden Perfect Fatal Second Broken Dark Silent Paranoid",
        "Hostage Countdown Stalker Surveillance Conspiracy Betrayal Passenger Threshold Blackout"
        " Informer Defector Impostor Pursuit Obsession Fugitive",
        "Secrets Lies Strangers Spies Shadows Hostages",
        (
            "The {adj} {noun}",
            "{adj} {noun}",
            "The {surname} {noun}",
            "{small} Minutes to Midnight",
            "Trust No {surname}",
            "The {noun} on {street}",
            "A {noun} Too Far",
            "{plural} in the Dark",
            "Without a {noun}",
            "Somebody Called {person}",
            "The {place} {noun}",
            "Nothing Left but {plural}",
        ),
    ),
    "War": Words(
        "Fallen Frozen Thousand-Mile Last Unknown Shattered Muddy Distant Iron Long",
        "Regiment Battalion Trench Frontline Ceasefire Brigade Offensive Armistice Medic Bunker"
        " Convoy Foxhole Barracks Flag",
        "Soldiers Trenches Bugles Prisoners Medals Guns",
        (
            "The {adj} {noun}",
            "The {noun} at {place}",
            "Retreat from {place}",
            "{number} {plural}",
            "The Siege of {place}",
            "Letters from the {noun}",
            "Sergeant {surname}'s {noun}",
            "No {plural} in {month}",
            "Hold {place}",
            "The {plural} of {place}",
        ),
    ),
    "Western": Words(
        "Dusty Lonesome Silver Crooked Dry Painted Six-Gun Whiskey Prairie Outlaw Desert",
        "Saloon Sheriff Canyon Stagecoach Gunslinger Mustang Ranch Bounty Trail Noose Rifle"
        " Homestead Marshal Prospector",
        "Gunslingers Coyotes Spurs Graves Outlaws Mustangs",
        (
            "Ride to {place}",
            "{number} Graves for {surname}",
            "The {adj} {noun}",
            "The {noun} of {place}",
            "A {noun} Called {person}",
            "{plural} at Sundown",
            "{surname}'s {noun}",
            "Last {noun} to {place}",
            "High {noun}",
            "The {surname} Gang",
            "West of {place}",
        ),
    ),
}

STARS = (
    "Altheon Boreas_Nine Carinth Delta_Corvi Elara_Prime Europa_Minor Halcyon_Four Ibex_Station"
    " Kepra Lyra_Seven Maru Nyx_Two Oberon_Gate Perseid_Station Quillon Rhea_Nine Sable_Moon"
    " Tau_Meridian Umbra Vega_Reach Xanthe Zephyrine"
)

# which second and third genres go with a first one, the likelier the earlier
COMPANIONS: dict[str, tuple[str, ...]] = {
    "Action": ("Thriller", "Adventure", "Crime", "Sci-Fi"),
    "Adventure": ("Action", "Fantasy", "Comedy", "Romance"),
    "Animation": ("Comedy", "Fantasy", "Adventure", "Musical"),
    "Comedy": ("Romance", "Drama", "Crime", "Adventure"),
    "Crime": ("Thriller", "Drama", "Mystery", "Action"),
    "Documentary": ("Drama", "War", "Musical", "Adventure"),
    "Drama": ("Romance", "Mystery", "War", "Crime"),
    "Fantasy": ("Adventure", "Romance", "Animation", "Action"),
    "Horror": ("Thriller", "Mystery", "Sci-Fi", "Fantasy"),
    "Musical": ("Romance", "Comedy", "Drama", "Animation"),
    "Mystery": ("Crime", "Thriller", "Drama", "Horror"),
    "Romance": ("Comedy", "Drama", "Musical", "Fantasy"),
    "Sci-Fi": ("Adventure", "Thriller", "Action", "Horror"),
    "Thriller": ("Crime", "Mystery", "Action", "Horror"),
    "War": ("Drama", "Action", "Romance", "Documentary"),
    "Western": ("Action", "Adventure", "Drama", "Crime"),
}

# how many of the 800 films have each first genre
SHARES: dict[str, int] = {
    "Action": 60,
    "Adventure": 46,
    "Animation": 42,
    "Comedy": 92,
    "Crime": 48,
    "Documentary": 32,
    "Drama": 100,
    "Fantasy": 40,
    "Horror": 50,
    "Musical": 26,
    "Mystery": 42,
    "Romance": 54,
    "Sci-Fi": 52,
    "Thriller": 60,
    "War": 28,
    "Western": 28,
}
