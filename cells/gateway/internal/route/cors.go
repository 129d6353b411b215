// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	"regexp"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
)

func corsOf(f *gatewayv1.HTTPCORSFilter) *envoy.CORS {
	to := &envoy.CORS{
		Credentials:     f.AllowCredentials != nil && *f.AllowCredentials,
		Methods:         texts(f.AllowMethods),
		RequestHeaders:  texts(f.AllowHeaders),
		ResponseHeaders: texts(f.ExposeHeaders),
		MaxAge:          5, // the default of the API, which definitions of older releases do not fill in
	}
	if f.MaxAge > 0 {
		to.MaxAge = uint32(f.MaxAge)
	}
	for _, o := range f.AllowOrigins {
		to.Origins = append(to.Origins, originOf(string(o)))
	}
	return to
}

// originOf matches an origin as browsers send it: in lower case, and without the port that its scheme implies. A wildcard
// stands for any number of labels.
func originOf(text string) envoy.Match {
	if text == "*" {
		return envoy.Match{Kind: envoy.Any}
	}
	text = strings.ToLower(text)
	for _, implied := range []struct{ scheme, port string }{{"http://", ":80"}, {"https://", ":443"}} {
		if strings.HasPrefix(text, implied.scheme) {
			text = strings.TrimSuffix(text, implied.port)
		}
	}
	if !strings.Contains(text, "*") {
		return envoy.Match{Kind: envoy.Exact, Value: text}
	}
	return envoy.Match{Kind: envoy.Regex, Value: strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, "[^:/]+")}
}

func texts[T ~string](all []T) (found []string) {
	for _, one := range all {
		found = append(found, string(one))
	}
	return found
}
