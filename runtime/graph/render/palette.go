// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package render

// The colours of drawings by their role, for a light background.
const (
	background     = "#ffffff"
	primaryText    = "#1f2733"
	secondaryText  = "#5c6675"
	boxBorder      = "#a8b3c1"
	linkColour     = "#8a94a3"
	frameBorder    = "#cfd6df"
	processFill    = "#f4f6f9"
	termFill       = "#fdf6e3"
	termBorder     = "#e3c98a"
	annotationText = "#7a6a3a"
	termLine       = "#c98a10"
	disabledFill   = "#f1f2f4"
	disabledText   = "#808a97"
	healthy        = "#2e8b57"
	degraded       = "#c8402f"
)

// Palette is all colours that drawings are made of, by name, so that a page
// that shows one can put others in their place.
func Palette() map[string]string {
	return map[string]string{
		"paper": background, "ink": primaryText, "faint": secondaryText, "line": boxBorder, "arrow": linkColour, "frame": frameBorder,
		"process": processFill, "honey": termFill, "comb": termBorder, "umber": annotationText, "amber": termLine,
		"grey": disabledFill, "pale": disabledText, "green": healthy, "red": degraded,
	}
}
