from __future__ import annotations

SIDES = {'forward': 1, 'left': 1j, 'right': -1j}


def _note(world: dict, text: str) -> None:
    '''Enter the things and walls in a view into the map.'''
    world['view'] = text
    for words in map(str.split, text.splitlines()):
        steps = [int(n) * SIDES[side] for n, side in zip(words, words[2:]) if side in SIDES]
        if steps:
            world['things'][world['at'] + world['way'] * sum(steps)] = ' '.join(words[1:3])


def _turn(world: dict) -> None:
    '''Turn right.'''
    world['way'] *= -1j
    _note(world, turn_right())


def _walk(world: dict) -> None:
    '''Go forward. Where the view stays the same, there was a wall.'''
    before, ahead = world['view'], world['at'] + world['way']
    text = go_forward()
    if text == before:
        world['things'].setdefault(ahead, 'wall')
    else:
        world['at'] = ahead
    _note(world, text)


def _start() -> dict:
    '''Turn right. Returns the map: where we are, which way we look, and things by their cells.'''
    world = {'at': 0, 'way': 1, 'things': {}}
    _turn(world)
    return world


def _search(world: dict, thing: str) -> bool:
    '''Look to this side and to the next one only. Returns whether the thing is on the map.'''
    if thing not in world['things'].values():
        _turn(world)
    return thing in world['things'].values()


def _route(world: dict, goal: complex) -> complex:
    '''Return the way of the next step straight to a cell, or 0 where something is right ahead.'''
    away = goal - world['at']
    way = complex(min(max(away.real, -1), 1)) or complex(0, min(max(away.imag, -1), 1))
    ahead = world['at'] + world['way']
    return 0 if ahead in world['things'] and ahead != goal else way


def _approach(world: dict, thing: str) -> str:
    '''Walk until the thing is in front of us. Returns what kept us from it, if anything did.'''
    if not _search(world, thing):
        return f'The {thing} is not in sight.'
    goal = next(cell for cell, name in world['things'].items() if name == thing)
    for _ in range(40):
        way = _route(world, goal)
        if not way:
            break
        while world['way'] != way:
            _turn(world)
        if world['at'] + way == goal:
            return ''
        _walk(world)
    return f'Something is in the way to the {thing}.'


def _take(world: dict, thing: str) -> str:
    '''Walk to the thing and pick it up. Returns what kept us from it, if anything did.'''
    problem = _approach(world, thing)
    if not problem:
        del world['things'][world['at'] + world['way']]
        _note(world, pick_up())
        if f'You carry a {thing}' not in world['view']:
            problem = f'The {thing} cannot be picked up.'
    return problem


def pick_up_thing(thing: str) -> str:
    '''Walk to a thing, such as red ball, and pick it up. Returns what was done or was wrong.'''
    return _take(_start(), thing) or f'You carry the {thing} now.'


def go_to_thing(thing: str) -> str:
    '''Walk until a thing, such as blue key, is in front of you. Returns whether that was done.'''
    return _approach(_start(), thing) or f'The {thing} is in front of you now.'
