// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/resources/domain/labels"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config says which labels make identities. Agents read the same options.
type Config struct {
	// Labels is text: agents split it on white space, and entries are regular
	// expressions, which a list's rules would take apart.
	Labels          string
	LabelPrefixFile string
	// IdentityNamedPorts is for agents that make labels of named ports.
	IdentityNamedPorts bool
}

const (
	labelsFlag = "labels"
	fileFlag   = "label-prefix-file"
	portsFlag  = "identity-named-ports"
)

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.String(labelsFlag, c.Labels, "Entries of the label filter, with spaces or commas between: [source:][!]regex. Agents must have the same")
	fs.String(fileFlag, c.LabelPrefixFile, "File of label prefixes that takes the place of the default filter. Agents must have the same")
	fs.Bool(portsFlag, c.IdentityNamedPorts, "Named ports of pods make identities, too: for clusters all of whose agents are of 1.20 or later")
}

// validate is asked where the operator makes identities.
func validate(c Config) error {
	if _, err := labels.ParseEntries(split(c.Labels)); err != nil {
		return cell.Invalid(labelsFlag, "every entry must be [source:][!]regex: %v", err)
	}
	if _, err := c.base(); err != nil {
		return cell.Invalid(fileFlag, "%v", err)
	}
	return nil
}

// newFilter makes the filter that the options describe, and says what is hardly
// meant.
func newFilter(c Config, log *slog.Logger) (*labels.Filter, error) {
	f, err := c.filter()
	if err != nil {
		return nil, err
	}
	warnings := f.Warnings()
	if !slices.Equal(split(c.Labels), strings.Fields(c.Labels)) {
		warnings = append(slices.Clip(warnings), "agents that read it from the ConfigMap take commas for parts of entries; put spaces between")
	}
	for _, w := range warnings {
		log.Warn("the label filter may not do what is meant", "labels", c.Labels, "warning", w)
	}
	return f, nil
}

func (c Config) filter() (*labels.Filter, error) {
	user, err := labels.ParseEntries(split(c.Labels))
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", labelsFlag, err)
	}
	base, err := c.base()
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", fileFlag, err)
	}
	return labels.NewFilter(base, user), nil
}

// base is what the file says, nil for the default filter.
func (c Config) base() ([]labels.Entry, error) {
	if c.LabelPrefixFile == "" {
		return nil, nil
	}
	data, err := os.ReadFile(c.LabelPrefixFile)
	if err != nil {
		return nil, err
	}
	base, err := labels.ParseFile(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.LabelPrefixFile, err)
	}
	return base, nil
}

// split takes entries apart at white space, and at commas that are not part of a
// regular expression such as a{1,3}.
func split(text string) []string {
	depth, escaped := 0, false
	return strings.FieldsFunc(text, func(r rune) bool {
		switch {
		case unicode.IsSpace(r):
			depth, escaped = 0, false
			return true
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case strings.ContainsRune("([{", r):
			depth++
		case strings.ContainsRune(")]}", r):
			depth = max(0, depth-1)
		default:
			return r == ',' && depth == 0
		}
		return false
	})
}
