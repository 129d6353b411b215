// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import "net/http"

// Network reaches servers as other clients do, and one host without a proxy and on connections that are not kept: the metadata
// service of the instance. Answers are bounded.
func Network(direct string) http.RoundTripper {
	return Bounded(byHost{direct, &http.Transport{DisableKeepAlives: true}, http.DefaultTransport})
}

type byHost struct {
	host           string
	direct, others http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b byHost) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Hostname() == b.host {
		return b.direct.RoundTrip(req)
	}
	return b.others.RoundTrip(req)
}
