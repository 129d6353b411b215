// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"reflect"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/policy"
)

// DialectOf is what the agents of a release check of a rule.
func DialectOf(r release.Release) policy.Dialect {
	return policy.Dialect{
		Later:          release.LaterFindings.In(r),
		Protocols:      release.PortProtocols.In(r),
		EmptyPorts:     release.PortsCanBeEmpty.In(r),
		Within:         release.ExceptsWithin.In(r),
		Messages:       !release.OnlyHTTPAndDNS.In(r),
		Requires:       !release.EmptyRequires.In(r),
		Authentication: release.AuthenticationChecked.In(r),
	}
}

// findings are those of a rule in the releases that have any; most rules have none.
type findings []releaseFindings

type releaseFindings struct {
	in   release.Set
	have policy.Findings
}

func findingsOf(r *v2.Rule) (all findings) {
	checker := policy.NewChecker(r)
	for _, in := range release.All() {
		all = all.with(in, checker.Check(DialectOf(in)))
	}
	return all
}

// inAll is one finding in all releases, which always holds.
func inAll(text string) findings {
	return findings{{release.SetOf(release.All()...), policy.Findings{policy.NewFinding(policy.Always, text)}}}
}

func (all findings) with(in release.Release, have policy.Findings) findings {
	if len(have) == 0 {
		return all
	}
	for i := range all {
		if reflect.DeepEqual(all[i].have, have) {
			all[i].in = all[i].in.Union(release.SetOf(in))
			return all
		}
	}
	return append(all, releaseFindings{release.SetOf(in), have})
}

// of are those of one release.
func (all findings) of(r release.Release) policy.Findings {
	for _, one := range all {
		if one.in.Has(r) {
			return one.have
		}
	}
	return nil
}
