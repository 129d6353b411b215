// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skep-operator/skep/resources/domain/expression"
)

// Check returns why Envoy refuses a route, and with it all routes of its table (ENV-31); nil for one that it takes. Its error is for
// the author of the route. mostProgram is how many instructions the program of a regular expression has at most, 0 for the bound of RE2.
func (r *Route) Check(mostProgram int64) error {
	if err := r.checkContent(mostProgram); err != nil {
		return err
	}
	for _, to := range r.routes("") {
		if err := to.ValidateAll(); err != nil {
			return err
		}
	}
	return nil
}

// checkContent returns why Envoy refuses what its schema allows.
func (r *Route) checkContent(mostProgram int64) error {
	if err := r.checkRegexes(mostProgram); err != nil {
		return err
	}
	if total := totalWeight(r.Backends); total > math.MaxUint32 {
		return fmt.Errorf("the weights of backends add up to %d, more than %d", total, uint32(math.MaxUint32))
	}
	for text := range r.texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("the text %s is not UTF-8", expression.Quote(text))
		}
	}
	if err := r.Auth.check(); err != nil {
		return err
	}
	edits := []*HeaderEdit{r.RequestHeaders, r.ResponseHeaders}
	for _, b := range r.Backends {
		edits = append(edits, b.RequestHeaders, b.ResponseHeaders)
	}
	for _, e := range edits {
		if err := e.check(); err != nil {
			return err
		}
	}
	return nil
}

// mostOfHeader is how many bytes the name of a header that is edited has at most.
const mostOfHeader = 16_384

// check returns which header Envoy does not let be changed.
func (e *HeaderEdit) check() error {
	if e == nil {
		return nil
	}
	names := slices.Clone(e.Remove)
	for _, h := range slices.Concat(e.Add, e.Set) {
		names = append(names, h.Name)
	}
	for _, name := range names {
		if strings.EqualFold(name, "host") || strings.HasPrefix(name, ":") {
			return fmt.Errorf("the header %s cannot be changed by a filter for headers: rewrite the host name or the path", expression.Quote(name))
		}
		if len(name) > mostOfHeader { // the schema has no bound for those that are removed
			return fmt.Errorf("the name %s of a header has %d bytes, and %d are the most", expression.Quote(name), len(name), mostOfHeader)
		}
	}
	return nil
}

// texts are those of a route that others have written.
func (r *Route) texts(yield func(string) bool) {
	all := []string{r.Path.Value, r.Method}
	for _, m := range slices.Concat(r.Headers, r.Queries) {
		all = append(all, m.Name, m.Value)
	}
	edits := []*HeaderEdit{r.RequestHeaders, r.ResponseHeaders}
	for _, b := range r.Backends {
		edits = append(edits, b.RequestHeaders, b.ResponseHeaders)
	}
	for _, e := range edits {
		all = append(all, e.texts()...)
	}
	if c := r.CORS; c != nil {
		for _, m := range c.Origins {
			all = append(all, m.Value)
		}
		all = slices.Concat(all, c.Methods, c.RequestHeaders, c.ResponseHeaders)
	}
	if a := r.Auth; a != nil {
		all = slices.Concat(all, []string{a.Path}, a.RequestHeaders, a.ResponseHeaders)
	}
	var paths []*string
	if to := r.Rewrite; to != nil {
		all, paths = append(all, to.Host), append(paths, to.PrefixPath, to.CompletePath)
	}
	if to := r.Redirect; to != nil {
		all, paths = append(all, to.Scheme, to.Host), append(paths, to.PrefixPath, to.CompletePath)
	}
	for _, path := range paths {
		if path != nil {
			all = append(all, *path)
		}
	}
	for _, text := range all {
		if !yield(text) {
			return
		}
	}
}

// texts are the names and the values of headers.
func (e *HeaderEdit) texts() (all []string) {
	if e == nil {
		return nil
	}
	for _, h := range slices.Concat(e.Add, e.Set) {
		all = append(all, h.Name, h.Value)
	}
	return append(all, e.Remove...)
}
