// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ec2test

import (
	"encoding/json"
	"net/http"
	"time"
)

// Metadata serves the instance metadata service, version 2: without a token nothing is answered.
func (c *Cloud) Metadata() http.Handler {
	const token = "c2tlcA=="
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		ttl := r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds")
		if ttl == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", ttl)
		_, _ = w.Write([]byte(token))
	})
	get := func(path string, answer func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Aws-Ec2-Metadata-Token") != token {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			if text, is := answer().(string); is {
				_, _ = w.Write([]byte(text))
				return
			}
			_ = json.NewEncoder(w).Encode(answer())
		})
	}
	get("/latest/dynamic/instance-identity/document", func() any {
		return map[string]string{"region": c.Region, "instanceId": c.Self, "accountId": "123456789012", "availabilityZone": c.Region + "a", "version": "2017-09-30"}
	})
	get("/latest/meta-data/instance-id", func() any { return c.Self })
	get("/latest/meta-data/placement/region", func() any { return c.Region })
	get("/latest/meta-data/iam/security-credentials/{$}", func() any { return "operator" })
	get("/latest/meta-data/iam/security-credentials/operator", func() any {
		key := "ASIAEXAMPLE"
		if c.Credential != nil {
			key = c.Credential()
		}
		now := time.Now().UTC()
		return map[string]string{
			"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": key, "SecretAccessKey": "secret", "Token": "token",
			"LastUpdated": now.Format(time.RFC3339), "Expiration": now.Add(time.Hour).Format(time.RFC3339),
		}
	})
	return mux
}
