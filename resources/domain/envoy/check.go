// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/domain/expression"
)

// Check returns why Envoy refuses a route, and with it all routes of its table (ENV-31); nil for one that it takes. Its error is for
// the author of the route.
func (r *Route) Check() error {
	if err := r.checkContent(); err != nil {
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
func (r *Route) checkContent() error {
	if err := r.checkRegexes(); err != nil {
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
	}
	return nil
}
