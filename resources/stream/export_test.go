// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import "github.com/skep-operator/skep/resources/dryrun"

// Planning makes the streams of a source show a plan.
func Planning(s *Source, p *dryrun.Plan) *Source {
	s.plan = p
	return s
}
