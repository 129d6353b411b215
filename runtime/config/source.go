// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package config

import (
	"cmp"
	"fmt"
)

// Kind is where a value can come from. Greater kinds win.
type Kind int

const (
	FromDefault Kind = iota
	FromDir
	FromFile
	FromEnvironment
	FromFlag
)

var kindNames = [...]string{"default", "directory", "file", "environment", "flag"}

func (k Kind) String() string { return kindNames[k] }

// Source is where a value was found.
type Source struct {
	Kind  Kind   `json:"kind"`
	Where string `json:"where,omitempty"` // file:line, the file of a directory, or a variable's name
}

func (s Source) String() string {
	if s.Where == "" {
		return s.Kind.String()
	}
	return fmt.Sprintf("%s %s", s.Kind, s.Where)
}

// MarshalText makes kinds readable in JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Sources says where to look for values.
type Sources struct {
	// EnvPrefix starts the names of environment variables: CILIUM_ makes
	// cluster-name CILIUM_CLUSTER_NAME. Without one no variable of an option's
	// own name is read: those of other programs are called so, too.
	EnvPrefix string
	// Environ looks up a variable; nil looks nowhere. Empty variables count as
	// unset.
	Environ func(string) (string, bool)
	// FileName is what a config file in the home directory is called, without
	// its ending. Empty looks for none.
	FileName string
}

// environ looks an option up under its own name and then under others.
func (s Sources) environ(option string, others []string) (string, Source, bool) {
	if s.Environ == nil {
		return "", Source{}, false
	}
	names := others
	if s.EnvPrefix != "" {
		names = append([]string{s.EnvPrefix + envName(option)}, others...)
	}
	for _, name := range names {
		if value, ok := s.Environ(name); ok && value != "" {
			return value, Source{FromEnvironment, name}, true
		}
	}
	return "", Source{}, false
}

func envName(option string) string {
	b := []byte(option)
	for i, c := range b {
		switch {
		case c == '-':
			b[i] = '_'
		case 'a' <= c && c <= 'z':
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// entry is a raw value and where it was found.
type entry struct {
	Raw
	source Source
}

// Entry is an option or an unknown key with its effective value.
type Entry struct {
	Name    string  `json:"name"`
	Value   string  `json:"value"`
	Default string  `json:"default"`
	Source  Source  `json:"source"`
	Module  string  `json:"module,omitempty"` // "" for keys that no module declares
	Option  *Option `json:"-"`
}

// AtDefault reports whether the value is that of the default, wherever it came
// from.
func (e Entry) AtDefault() bool { return e.Value == e.Default }

func byName(a, b Entry) int { return cmp.Compare(a.Name, b.Name) }
