// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/skep-operator/skep/resources/domain/labels"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config is the filter of the labels that are part of identities, of which agents read the same options, and whether namespaces are braked.
type Config struct {
	IdentityBrake   bool     `flag:"identity-brake" usage:"Hold back namespaces whose pods change their labels so often that they would use up the numbers for identities"`
	Labels          []string `flag:"labels" usage:"Label filter: entries [source:][!]regex, separated by white space in a ConfigMap and by commas on the command line. Must be the same as the agents'" list:"white space"`
	LabelPrefixFile string   `flag:"label-prefix-file" usage:"File of label prefixes that replaces the default label filter. Must be the same as the agents'"`
}

const (
	labelsFlag = "labels"
	fileFlag   = "label-prefix-file"
)

// validate runs where the operator manages identities.
func validate(c Config) error {
	if _, err := labels.ParseEntries(c.Labels); err != nil {
		return cell.Invalid(labelsFlag, "every entry must be [source:][!]regex: %v", err)
	}
	_, rest, err := c.base()
	switch {
	case err != nil:
		return cell.Invalid(fileFlag, "%v", err)
	case len(rest) > 0:
		return cell.Questionable(fileFlag, "data behind the JSON value is not read, nor by agents: %.40q", rest)
	}
	return nil
}

// newFilters makes the label filters of the options, and logs their warnings.
func newFilters(c Config, log *slog.Logger) (*filters, error) {
	user, err := labels.ParseEntries(c.Labels)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", labelsFlag, err)
	}
	file, _, err := c.base()
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", fileFlag, err)
	}
	made := makeFilters(file, user)
	for _, w := range made.all[0].Warnings() { // they are about what people wrote, the same in all
		log.Warn("suspicious label filter", "labels", c.Labels, "warning", w)
	}
	return made, nil
}

// base is the content of the file, nil for the default filter, and the data behind its JSON value.
func (c Config) base() (base []labels.Entry, rest []byte, err error) {
	if c.LabelPrefixFile == "" {
		return nil, nil, nil
	}
	data, err := os.ReadFile(c.LabelPrefixFile)
	if err != nil {
		return nil, nil, err
	}
	base, rest, err = labels.ParseFile(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.LabelPrefixFile, err)
	}
	return base, rest, nil
}
