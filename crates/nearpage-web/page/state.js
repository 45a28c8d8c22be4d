// The page's state, in the fragment of its address: what is asked, and an example or a machine in the short form. What somebody
// dropped is never in it.

export const EMPTY = {
  example: '', numa: '', kind: '', tab: '', model: '', set: [], rebuilt: false, machine: '', map_cpus: 'socket',
};

const TEXTS = ['example', 'numa', 'kind', 'tab', 'model', 'machine', 'map_cpus'];
/** What one key may hold: an address comes from anybody. */
const LETTERS_MOST = 8192;
const SETTINGS_MOST = 32;

export function read(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, ''));
  const state = structuredClone(EMPTY);
  for (const key of TEXTS) {
    const value = given.get(key);
    if (value !== null && value.length <= LETTERS_MOST) state[key] = value;
  }
  state.set = given.getAll('set').filter((one) => one.length <= 256).slice(0, SETTINGS_MOST);
  state.rebuilt = given.get('rebuilt') === '1';
  if (!['socket', 'comm', 'round-robin'].includes(state.map_cpus)) state.map_cpus = 'socket';
  if (!['', 'machine', 'log', 'recording', 'trace'].includes(state.kind)) state.kind = '';
  return state;
}

export function write(state) {
  const out = new URLSearchParams();
  for (const key of TEXTS) if (state[key] !== EMPTY[key]) out.set(key, state[key]);
  for (const one of state.set) out.append('set', one);
  if (state.rebuilt) out.set('rebuilt', '1');
  return '#' + out;
}
