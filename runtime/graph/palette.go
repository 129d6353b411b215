// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

// The colours of drawings, for a light background.
const (
	paper   = "#ffffff"
	ink     = "#1f2733"
	faint   = "#5c6675"
	line    = "#a8b3c1"
	arrow   = "#8a94a3"
	frame   = "#cfd6df"
	process = "#f4f6f9"
	honey   = "#fdf6e3"
	comb    = "#e3c98a"
	umber   = "#7a6a3a"
	amber   = "#c98a10"
	grey    = "#f1f2f4"
	pale    = "#808a97"
	green   = "#2e8b57"
	red     = "#c8402f"
)

// Palette is all colours that drawings are made of, by name, so that a page
// that shows one can put others in their place.
func Palette() map[string]string {
	return map[string]string{
		"paper": paper, "ink": ink, "faint": faint, "line": line, "arrow": arrow, "frame": frame,
		"process": process, "honey": honey, "comb": comb, "umber": umber, "amber": amber,
		"grey": grey, "pale": pale, "green": green, "red": red,
	}
}
