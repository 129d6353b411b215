// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"bytes"
	"testing"
)

// renamed gives copies other names over time.
type renamed struct {
	suffix string
	asked  map[Name]int
}

func (r *renamed) SecretCopy(of Name) string {
	r.asked[of]++
	return SecretCopy(of) + r.suffix
}

func (r *renamed) ConfigMapCopy(of Name) string { return r.SecretCopy(of) }

// SEC-14: the names of copies are asked for with each model, and what has not changed but for them is translated again.
func TestNamesOfCopiesAreAskedForAgain(t *testing.T) {
	copies := &renamed{asked: map[Name]int{}}
	o := options
	o.Copies = copies
	secret, authority := Name{"ns", "c"}, Name{"ns", "ca"}
	m := Model{HTTP: []Listener{{Hostname: "a.test", Port: 443, TLS: true, Secrets: []Name{secret}, Routes: []*Route{{
		Path: Match{Prefix, "/"}, Backends: []Backend{{Name: Name{"ns", "s"}, Port: "443", TLS: &UpstreamTLS{ServerName: "s.test", Authority: authority}}},
	}}}}}
	of := &Translator{}
	for _, copies.suffix = range []string{"", "-x", "-x", "-y"} {
		result, err := of.Translate(m, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []Name{secret, authority} {
			name, found := []byte(`"`+o.SecretsNamespace+"/"+SecretCopy(s)+copies.suffix+`"`), 0
			for _, r := range result.Spec.Resources {
				found += bytes.Count(r.Raw, name)
			}
			if found != 1 {
				t.Errorf("%s is named %d times", name, found)
			}
		}
	}
	if copies.asked[secret] < 4 || copies.asked[authority] < 4 {
		t.Errorf("the names are asked for %v times", copies.asked)
	}
}
