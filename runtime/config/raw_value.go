// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import "strings"

// Raw is a value as it was written, before it is decoded to a type. At most one
// form is set; all empty, it is an empty text.
type Raw struct {
	Text     string
	Repeated []string          // of the flag of a list or a map, once per time it was given
	List     []string          // of a sequence in a file
	Map      map[string]string // of a mapping in a file
}

func (r Raw) String() string {
	switch {
	case r.Map != nil:
		return formatMap(r.Map)
	case r.List != nil:
		return formatList(r.List)
	case r.Repeated != nil:
		return strings.Join(r.Repeated, ",")
	}
	return r.Text
}

// texts are the texts that a value is made of, where each can hold several
// elements.
func (r Raw) texts() []string {
	if r.Repeated != nil {
		return r.Repeated
	}
	return []string{r.Text}
}

func (r Raw) isEmpty() bool {
	return r.Text == "" && r.Repeated == nil && r.List == nil && r.Map == nil
}
