// What the explorer uses of deck.gl; everything else is left out of the bundle.
export { Deck, OrthographicView } from "@deck.gl/core";
export { LineLayer, ScatterplotLayer } from "@deck.gl/layers";
